#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the conformance test with the model on both sides, which tests the draws, the kernels and the test's arithmetic.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib exec "$TEST_BUILDDIR/tests/gpu/conformance/conformance" 1 500
