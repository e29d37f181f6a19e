#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The seeds' examples on the stand-in driver.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$TEST_BUILDDIR/tests/seeds/test_seeds"
