#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh SECONDS DIRECTORY TARGET...: builds the fuzz targets with clang and libFuzzer in DIRECTORY/build, and runs
# each for so many seconds, as many at a time as there are CPUs. They start from tests/fuzz/corpus and from what
# earlier runs left in DIRECTORY/corpus. An input that breaks a promise is in DIRECTORY/found, and this fails.
set -eu
[ "$#" -ge 3 ] || { echo "usage: run.sh SECONDS DIRECTORY TARGET..." >&2; exit 2; }
source=$(cd "$(dirname "$0")/../.." && pwd)
seconds=$1
mkdir -p "$2/build" "$2/found"
cd "$2"
directory=$PWD
shift 2
command -v "${FUZZ_CC:=clang}" >/dev/null || { echo "make fuzz needs clang; FUZZ_CC names another one" >&2; exit 1; }
unset MAKEFLAGS MFLAGS MAKELEVEL

[ -e build/config.status ] || (cd build && "$source/configure" -q "CC=$FUZZ_CC" --enable-fuzzers --with-cuda=no >/dev/null)
make --no-print-directory -s -C build -j "$(nproc)" "$@" >build.log 2>&1 || { tail -n 50 build.log >&2; exit 1; }

# A target that hangs is a finding of its own; libFuzzer ends one whose input takes too long.
cat >one.sh <<'ONE'
target=$1
name=${target#fuzz_}
mkdir -p "corpus/$name"
timeout -k 10 $((seconds + 120)) "build/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
	-max_len=4096 -print_final_stats=1 -artifact_prefix="found/$name-" "corpus/$name" \
	"$source/tests/fuzz/corpus/$name" >"$target.log" 2>&1 && rc=0 || rc=$?
inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$target.log")
edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$target.log" | tail -n 1)
echo "$target: ${inputs:-no} inputs, ${edges:-no} edges, $([ "$rc" = 0 ] && echo nothing found || echo "ended with $rc")"
[ "$rc" = 0 ] || tail -n 40 "$target.log"
exit "$rc"
ONE
export seconds source
rc=0
printf '%s\n' "$@" | xargs -P "$(nproc)" -I TARGET sh one.sh TARGET || rc=1
[ "$rc" = 0 ] || echo "found: $(find "$directory/found" -type f | tr '\n' ' ')" >&2
exit "$rc"
