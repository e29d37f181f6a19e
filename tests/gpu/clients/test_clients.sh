#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Client processes on the stand-in driver; a GPU host runs the program as it is.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$TEST_BUILDDIR/tests/gpu/clients/clients" "$TEST_TMAD" "$TEST_BUILDDIR/tests/gpu/clients/astray_tmad"
