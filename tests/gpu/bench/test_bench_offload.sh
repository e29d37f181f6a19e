#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmark of blocks between device and host, on the stand-in driver: every row of it, small, is right and is
# measured, alone and beside the process that computes.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
room=$(mktemp -d) || exit 1
"$TEST_TMAD" --config= --engine=cuda --socket="$room/socket" >"$room/tmad" 2>&1 &
tmad=$!
trap 'kill $tmad 2>/dev/null; wait $tmad; rm -rf "$room"' EXIT
for _ in $(seq 200); do
	[ ! -S "$room/socket" ] || break
	sleep 0.1
done
echo 1..2
if timeout 240 "$TEST_BUILDDIR/tests/gpu/bench/bench_offload" --tiny --compute "$TEST_BUILDDIR/tests/gpu/bench/compute" \
	"$room/socket" >"$room/log" 2>&1; then
	echo "ok 1 - every row"
else
	echo "not ok 1 - every row"
fi
if [ "$(grep -cE '^\| (out|in) ' "$room/log")" = 36 ] && ! grep -qE '(nan|inf)' "$room/log"; then
	echo "ok 2 - everything was measured"
else
	echo "not ok 2 - everything was measured"
fi
sed 's/^/# /' "$room/log" "$room/tmad"
