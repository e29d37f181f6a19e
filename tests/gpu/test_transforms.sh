#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random transforms by the kernels on the stand-in driver; a GPU host runs the program as it is. Among these seeds is
# 32577, which pads from an odd base with a value of several bytes.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib exec "$TEST_BUILDDIR/tests/gpu/transforms" 600 32001
