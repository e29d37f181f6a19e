#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random lists and batches by the engine on the stand-in driver; a GPU host runs the program as it is.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib exec "$TEST_BUILDDIR/tests/gpu/lists" 200 5000
