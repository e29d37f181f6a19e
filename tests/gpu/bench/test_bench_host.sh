#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmark of traffic with the host itself on the stand-in driver: every row of it, small, is right.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
echo 1..1
if "$TEST_BUILDDIR/tests/gpu/bench/bench_host" 1 256 2 4 64 >"$log" 2>&1; then
	echo "ok 1 - every row"
else
	echo "not ok 1 - every row"
fi
sed 's/^/# /' "$log"
