#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The service on the stand-in driver, where tmad has the engine for it.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec sh "$TEST_SRCDIR/tests/gpu/service.sh" "$TEST_TMAD" "$TEST_TMACTL"
