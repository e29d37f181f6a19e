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

# rc STATUS ARGUMENT... runs the program, whose exit status has to be STATUS.
rc() {
	wanted=$1
	shift
	${EMULATOR:-} "$bench" "$@" >"$work/out" 2>"$work/err"
	[ $? = "$wanted" ]
}

out_has() { grep -qF -e "$1" "$work/out"; }
cmp_fails() { ! cmp -s "$1" "$2"; }
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
cp "$work/out" "$work/first"
ok "... every row" out_has "rows that reach their bar: "
rows=$(sed -n 's/^rows that reach their bar: [0-9]* of \([0-9]*\);.*/\1/p' "$work/out")
case $bench in
*bench_gpu)
	ok "... against what was predicted of it" out_has "ratios within 20 % of the prediction: "
	ok "... and of copies" out_has "copy within 20 % of the prediction: "
	ok "... after alternatives were tried" out_has "plans tried for 1 of $rows rows; "
	ok "without trials" rc 0 --quick --runs 1 --no-tune
	ok "... there are none" [ "$(grep -c 'plans tried' "$work/out")" = 0 ]
	refused "an option of the CPU's" --beside --beside 1
	;;
*)
	refused "an option of the GPU's" --no-tune --no-tune
	ok "each instruction set" rc 0 --quick --runs 2 --isa all
	isas=$(sed -n 's/^\([a-z0-9]*\): rows that reach .* of '"$rows"';.*/\1/p' "$work/out" | paste -s -d ,)
	ok "... in turns, each in a line of a row" out_lines ' \[31, 33\] ' "$(echo "$isas" | tr , '\n' | wc -l)"
	ok "... and how they are distributed" out_lines "^plain  *$rows " 1
	ok "... the same named" rc 0 --quick --runs 1 --isa "$isas"
	ok "one is not named in lines" rc 0 --quick --runs 1 --isa plain
	ok "... but above them" out_has "cpu engine, plain, "
	ok "... only" out_lines '^plain' 0
	ok "each candidate" rc 0 --quick --random 7 3 --most 16 --runs 2 --isa plain --candidates
	ok "... in a line of a row" out_lines '^32K 1024:256 .*\]' 3
	ok "... the chosen one against the best" out_has "chosen within 10 % of the best candidate: "
	ok "beside others" rc 0 --quick --runs 1 --beside 2
	ok "... which it says" out_has ", beside 2 processes that copy"
	ok "... of none there is no word" [ "$(grep -c beside "$work/first")" = 0 ]
	refused "no others" --beside=0 --beside 0
	refused "an instruction set that is none" "--isa=mmx: this machine has plain" --isa plain,mmx
	refused "no instruction set" "--isa=: this machine has plain" --isa plain,
	refused "an instruction set twice" "plain is named twice" --isa all,plain
	;;
esac
ok "one row" rc 0 --quick --runs 1 --rows 'edge pad' --markdown
ok "... in Markdown" out_lines '^| edge pad .*|$' 1
ok "random rows" rc 0 --quick --random 7 12 --most 16 --runs 1
rows_of() { sed '/^rows that/,$d' "$work/out" | grep -E ' \[[0-9, ]*\] ' | cut -c 1-68; } # no figures
rows_of >"$work/drawn"
ok "... as many as were asked for" [ "$(grep -c . "$work/drawn")" = 12 ]
ok "... and how they are distributed" out_lines '^all  *12 ' 1
ok "... by the size of elements" out_has "-byte elements "
ok "... with the worst ten" out_lines '^[0-9.]*  .* by [a-z_]*$' 10
ok "... explained" out_lines '^    \(no tile\|tile [0-9x]*\),' "$(grep -c '^    .*, grid ' "$work/out")"
ok "... the same again" rc 0 --quick --random 7 12 --most 16 --runs 1
rows_of >"$work/again"
ok "... from the same seed" cmp -s "$work/drawn" "$work/again"
ok "... others from another" rc 0 --quick --random 8 12 --most 16 --runs 1
rows_of >"$work/again"
ok "... seed" cmp_fails "$work/drawn" "$work/again"
ok "those with a word in them" rc 0 --quick --random 7 40 --most 16 --runs 1 --rows crop
ok "... only" out_lines '^crop ' "$(sed -n 's/^all  *\([0-9]*\) .*/\1/p' "$work/out")"
ok "--help" rc 0 --help
ok "... leaves nothing out" out_has --compare=FILE
refused "an option that is none" --speed --speed
refused "an argument" faster faster
refused "no number of runs" --runs=0 --runs=0
refused "no file" --compare --compare
refused "a seed that is none" --random=x --random x
refused "no number of rows" "--random SEED many" --random 7 many
refused "one argument too many" "12: no such argument" --random 7 12 12
refused "sizes without rows to draw" --least --least 8
refused "sizes that leave no room" --most=8 --random 7 --least 8 --most 8
refused "rows that are drawn and read" --load --random 7 --load "$work/none"
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
	ok "random rows as JSON" rc 0 --quick --random 7 12 --most 16 --runs 1 --json
	cp "$work/out" "$work/random.json"
	ok "... which has all of their requests" out_lines \
		'"src_strides":.*"src_offset":.*"perm":.*"before":.*"after":.*"mode":.*"value":.*"explain":"[^"]' 12
	ok "... which --load reads" rc 0 --load "$work/random.json"
	ok "... and sums up" out_lines '^all  *12 ' 1
	ok "... explained" out_has ", grid "
	ok "random rows compared" rc 0 --quick --random 7 12 --most 16 --runs 1 --compare "$work/random.json"
	ok "... all of them" out_has "rows in both: 12; "
	ok "... by their mean" out_has "geometric mean "
	case $bench in
	*bench_gpu) ;;
	*)
		ok "instruction sets as JSON" rc 0 --quick --runs 1 --isa all --json
		cp "$work/out" "$work/isas.json"
		ok "... named in each row" out_lines '"isa":' "$(grep -c '"what":' "$work/out")"
		ok "... compared with one" rc 0 --load "$work/report.json" --compare "$work/isas.json"
		ok "... which is one of them" out_has "rows in both: $rows; "
		ok "... in Markdown" rc 0 --load "$work/isas.json" --markdown
		ok "... a line each" out_lines '^| plain | crop ' 1
		;;
	esac
	refused "a file that is not there" "$work/none" --load "$work/none"
	echo '{}' >"$work/other.json"
	refused "another JSON" other.json --compare "$work/other.json"
else
	ok "no --json without its library" grep -q 'libjansson-dev was missing' "$work/err"
fi

# Separate programs measure many small moves. A script cannot start them under an emulator.
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
