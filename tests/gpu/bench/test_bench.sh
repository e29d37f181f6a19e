#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmark itself on the stand-in driver.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec sh "$TEST_SRCDIR/tests/bench/test_bench.sh" "$TEST_BUILDDIR/tests/gpu/bench/bench_gpu"
