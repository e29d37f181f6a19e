#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests ranges of many allocations on the stand-in driver; a GPU host runs the same program with a tmad.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
room=$(mktemp -d) || exit 1
"$TEST_TMAD" --engine=cuda --socket="$room/socket" &
tmad=$!
for _ in $(seq 200); do
	[ -S "$room/socket" ] && break
	sleep 0.1
done
"$TEST_BUILDDIR/tests/gpu/ranges" "$room/socket" 60
rc=$?
kill $tmad
wait $tmad
rm -rf "$room"
exit $rc
