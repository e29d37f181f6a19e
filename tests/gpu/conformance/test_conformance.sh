#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The conformance run where the model is on both sides: of its draws, its kernels and its own arithmetic.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib exec "$TEST_BUILDDIR/tests/gpu/conformance/conformance" 1 500
