#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A benchmark program itself, on rows of a few KiB: what it prints, reads back and refuses. No figure is judged.
#
#   test_bench.sh [PROGRAM]
set -u
bench=${1:-$TEST_BUILDDIR/tests/bench/bench}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cases=0

# ok NAME COMMAND...
ok() {
	cases=$((cases + 1))
	name=$1
	shift
	if "$@"; then
		echo "ok $cases - $name"
	else
		echo "not ok $cases - $name"
		sed 's/^/# /' "$work/out" "$work/err"
	fi
}

# rc STATUS ARGUMENT...: runs the program.
rc() {
	wanted=$1
	shift
	${EMULATOR:-} "$bench" "$@" >"$work/out" 2>"$work/err"
	[ $? = "$wanted" ]
}

out_has() { grep -qF -e "$1" "$work/out"; }
out_lines() { [ "$(grep -c "$1" "$work/out")" = "$2" ]; }
one_line_error() { [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$1" "$work/err"; }
is_json() { [ "${TEST_PYTHON:-no}" = no ] || "$TEST_PYTHON" -c 'import json, sys; json.load(open(sys.argv[1]))' "$1"; }

# refused NAME WORDS ARGUMENT...
refused() {
	name=$1 words=$2
	shift 2
	rc 2 "$@"
	ok "refused: $name" one_line_error "$words"
}

ok "it measures" rc 0 --quick
ok "... every row" out_has "rows that reach their bar: "
rows=$(sed -n 's/^rows that reach their bar: [0-9]* of \([0-9]*\);.*/\1/p' "$work/out")
ok "one row" rc 0 --quick --runs 1 --rows 'edge pad' --markdown
ok "... in Markdown" out_lines '^| edge pad .*|$' 1
ok "--help" rc 0 --help
ok "... leaves nothing out" out_has --compare=FILE
refused "an option that is none" --speed --speed
refused "an argument" faster faster
refused "no number of runs" --runs=0 --runs=0
refused "no file" --compare --compare
refused "rows that there are not" --rows --quick --rows nothing
refused "two formats" --markdown --json --markdown
if rc 0 --quick --json; then
	cp "$work/out" "$work/report.json"
	ok "--json is JSON" is_json "$work/report.json"
	ok "--load prints its table" rc 0 --load "$work/report.json"
	ok "... of all rows" out_has " of $rows; "
	ok "--load, --json gives the same" rc 0 --load "$work/report.json" --json
	ok "... bytes" cmp -s "$work/out" "$work/report.json"
	ok "compared with itself" rc 0 --load "$work/report.json" --compare "$work/report.json"
	ok "... nothing changes" out_has "rows in both: $rows; better: 0; worse: 0;"
	ok "... in any row" out_lines ' +0\.0 % $' "$rows"
	refused "JSON of a comparison" --compare --json --compare "$work/report.json"
	refused "a file that is not there" "$work/none" --load "$work/none"
	echo '{}' >"$work/other.json"
	refused "another JSON" other.json --compare "$work/other.json"
else
	ok "no --json without its library" grep -q 'libjansson-dev was missing' "$work/err"
fi

# Many small moves, by programs of their own. What an emulator runs is not started by a script.
moves() { "$TEST_PYTHON" "$TEST_SRCDIR/tests/bench/moves.py" "$@" >"$work/out" 2>"$work/err"; }
no_bench_moves() { ! "$TEST_BUILDDIR/tests/bench/bench_moves" "$@" >"$work/out" 2>"$work/err"; }
if [ $# = 0 ] && [ "${TEST_PYTHON:-no}" != no ] && [ -z "${EMULATOR:-}" ]; then
	ok "many small moves" moves --quick
	ok "... lists of blocks, by the service" out_lines '^| [0-9]* KiB blocks .*| memcpy |' 6
	ok "... one request against many" out_lines '^| 4 KiB blocks gathered by one request |' 3
	ok "... plans against pings" out_has '| ping, 64 deep |'
	ok "... the rows of a GPU, without figures" out_lines '^| GPU: .* not measured here |$' 6
	ok "... and how many hold their bar" out_has 'rows that hold their bar: '
	ok "refused: no threads" no_bench_moves "$work/none" 0 blocks
	ok "... with what it takes" one_line_error 'SOCKET THREADS'
	ok "refused: a part that is none" no_bench_moves "$work/none" 1 moves
	ok "... with what it takes" one_line_error 'SOCKET THREADS'
	ok "refused: no service there" no_bench_moves "$work/none" 1 blocks
	ok "... which it names" one_line_error "$work/none"
fi
echo "1..$cases"
