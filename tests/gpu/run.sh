#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What there is to run on a GPU host, from the folder that `make gpu-bundle` makes. The summary is short, and
# says where a log tells more.
#
#   run.sh [check|bench|neighbour|offload|fairness|sanitize|python|cpu|all] [LOGS]     all, ./gpu-logs
#
#   check     transforms, lists, batches, launches into streams of the program and moves between its host memory and a
#             device against the oracle, the seeds' examples, the conformance run, the service, its clients, ranges of
#             many allocations
#   bench     GB/s of each row, BENCH are bench_gpu's arguments, without blanks in them; what the service adds to a
#             launch; lists by it, against its own copy; and neighbour
#   neighbour the service as a neighbour of a process that computes, without and with MPS
#   offload   blocks of many layers between device and host, alone and beside a process that computes, without and with
#             MPS; against PyTorch, where that is
#   fairness  a polite user beside floods of another; needs Python 3.11, and root
#   sanitize  transforms under compute-sanitizer, where there is one
#   python    the Python package with PyTorch's tensors, in the program's streams and by the service, with and without
#             expandable segments, and against PyTorch; stages
#             on GPUs, where NIXL is. It needs PyTorch, and a wheel of the package that was there when the bundle was made
#             (make wheel)
#   cpu       the CPU engine on all CPUs, by each of their instruction sets, against memcpy, on random rows and on the
#             chosen ones; against NumPy, torch and HPTT, where these are. It needs no GPU, and is not part of all
#
# compare.py beside it compares the kernels with torch and cuTENSOR, where these are; compare.py --help says how.
# against.sh compares them with those of another bundle.
#
# By environment: OFFLOAD, arguments of torch_offload.py; TRANSFORMS, LISTS, DRAWS, DRAW_SECONDS, how many; RANGES, MiB of a range; LD_LIBRARY_PATH, for another
# libcuda.so.1. For cpu: RANDOM_ROWS and COMPARED_ROWS, "SEED N"; HPTT_LIBRARY, a libhptt.so.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
what=${1:-all} logs=${2:-gpu-logs}
case $what in
check | bench | neighbour | offload | fairness | sanitize | python | cpu | all) ;;
*)
	sed -n 's/^# *\(run\.sh \[.*\)/\1/p' "$0" >&2
	exit 2
	;;
esac
mkdir -p "$logs" || exit 1
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib
export LD_LIBRARY_PATH
PATH=$PATH:/usr/local/cuda/bin
failures=0

# say NAME VERDICT DETAIL
say() {
	printf '%-24s %-8s %s\n' "$1" "$2" "$3"
	[ "$2" != FAILED ] || failures=$((failures + 1))
}

# logged NAME SECONDS COMMAND...: into NAME.log, no longer than that.
logged() {
	log=$logs/$1.log limit=$2 start=$(date +%s)
	shift 2
	timeout -k 10 "$limit" "$@" >"$log" 2>&1
	rc=$?
	took=$(($(date +%s) - start))
}

# tap NAME SECONDS COMMAND...: a program that prints TAP.
tap() {
	logged "$@"
	skip=$(sed -n 's/^1\.\.0 # SKIP //p' "$log")
	passed=$(grep -c '^ok ' "$log") failed=$(grep -c '^not ok ' "$log")
	if [ -n "$skip" ]; then
		say "$1" skipped "$skip"
	elif [ $rc = 0 ] && [ "$failed" = 0 ] && grep -q '^1\.\.' "$log"; then
		say "$1" passed "$passed, $took s"
	else
		say "$1" FAILED "$failed of $((passed + failed)), exit $rc, $took s: $log"
		{ grep -E '^(not ok|Bail out)' "$log" || tail -n 1 "$log"; } | head -n 5 | sed 's/^/    /'
	fi
}

# plain NAME SECONDS COMMAND...: one whose exit status is all.
plain() {
	logged "$@"
	[ $rc = 0 ] && say "$1" passed "$took s: $log" || say "$1" FAILED "exit $rc, $took s: $log"
}

check() {
	tap transforms 200 "$here/bin/transforms" "${TRANSFORMS:-2000}"
	tap lists 200 "$here/bin/lists" "${LISTS:-4000}"
	tap launches 200 env TEST_SHARE="${SHARE:-1}" "$here/bin/property_streams"
	tap host 200 env TEST_SHARE="${SHARE:-1}" "$here/bin/property_host"
	tap seeds 120 "$here/bin/test_seeds"
	tap conformance $((${DRAW_SECONDS:-120} + 60)) \
		"$here/bin/conformance" 1 "${DRAWS:-8000}" 0 "${DRAW_SECONDS:-120}"
	grep -E '^# (wrong|  .*%)' "$log" | cut -c 1-200 | head -n 12 | sed 's/^#/   /'
	tap service 100 sh "$here/service.sh" "$here/bin/tmad" "$here/bin/tmactl"
	tap clients 240 "$here/bin/clients" "$here/bin/tmad" "$here/bin/astray_tmad"
	with_tmad ranges
}

bench() {
	plain bench 500 "$here/bin/bench_gpu" ${BENCH:-}
	plain bench-blocks 200 "$here/bin/bench_blocks"
	plain bench-host 200 "$here/bin/bench_host"
	with_tmad by_service
	neighbour
}

# with_tmad COMMAND...: with a tmad of its own, at $room/socket.
with_tmad() {
	room=$(mktemp -d) || exit 1
	"$here/bin/tmad" --engine=cuda --socket="$room/socket" 2>"$logs/$1-tmad.log" &
	tmad=$!
	for _ in $(seq 200); do
		[ -S "$room/socket" ] && break
		kill -0 $tmad 2>/dev/null || break
		sleep 0.1
	done
	"$@"
	kill $tmad 2>/dev/null
	wait $tmad
	rm -rf "$room"
}

# A small transform by the service, and by a launch; lists by the service.
by_service() {
	plain latency 120 "$here/bin/bench_latency" "$room/socket"
	plain bench-lists 120 "$here/bin/bench_lists" "$room/socket"
	plain bench-tables 120 "$here/bin/bench_tables" "$room/socket"
}

ranges() {
	tap ranges 120 "$here/bin/ranges" "$room/socket" "${RANGES:-1024}"
	grep '^# ' "$log" | sed 's/^#/   /'
}

neighbour() {
	plain neighbour 240 sh "$here/neighbour.sh" "$here/bin"
	sed 's/^/    /' "$log"
}

offload() {
	plain offload 420 env BENCHMARK=bench_offload sh "$here/neighbour.sh" "$here/bin"
	sed 's/^/    /' "$log"
	PYTHONPATH=$here/site${PYTHONPATH:+:$PYTHONPATH}
	export PYTHONPATH
	if python3 -c 'import torch, tmaclient' 2>/dev/null; then
		with_tmad torch_offload
		plain torch-blocks 120 python3 "$here/tests/gpu/python/torch_blocks.py" --own
		sed 's/^/    /' "$log"
	else
		say torch-offload skipped "there is no PyTorch, or no wheel of the package"
	fi
}

torch_offload() {
	plain torch-offload 300 python3 "$here/tests/gpu/python/torch_offload.py" "$room/socket" ${OFFLOAD:-}
	sed 's/^/    /' "$log"
}

fairness() {
	if ! python3 -c 'import unittest; unittest.TestCase.enterContext' 2>/dev/null; then
		say fairness skipped "there is no Python 3.11"
		return
	fi
	tap fairness 400 env MSGPACK_PUREPYTHON=1 PYTHONPATH="$here/python" PYTHONDONTWRITEBYTECODE=1 TEST_GPU=1 \
		TEST_BUILDDIR="$here" TEST_TMAD="$here/bin/tmad" TEST_TMACTL="$here/bin/tmactl" \
		python3 "$here/tests/stress/test_fairness.py" OnDevice
	grep '^# cuda' "$log" | sed 's/^#/   /'
}

python() {
	PYTHONPATH=$here/site${PYTHONPATH:+:$PYTHONPATH}
	export PYTHONPATH
	if ! python3 -c 'import torch, tmaclient' 2>/dev/null; then
		say python skipped "there is no PyTorch, or no wheel of the package"
		return
	fi
	tap launches 500 python3 "$here/tests/gpu/python/torch_launches.py"
	grep '^# ' "$log" | sed 's/^#/   /'
	with_tmad streams
	PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
	export PYTORCH_CUDA_ALLOC_CONF
	with_tmad expandable_streams
	unset PYTORCH_CUDA_ALLOC_CONF
	with_tmad torch_table
	with_tmad stages
}

# A tmad that is started again whenever it ends.
keep_tmad() {
	kill $tmad
	wait $tmad
	touch "$room/kept"
	while [ -e "$room/kept" ]; do
		"$here/bin/tmad" --engine=cuda --socket="$room/socket" 2>>"$logs/$1-tmad.log" &
		echo $! >"$room/pid"
		wait $!
	done &
	tmad=$!
	until [ -S "$room/socket" ] && [ -e "$room/pid" ]; do sleep 0.1; done
}

streams_as() {
	keep_tmad "$1"
	tap "$1" 240 python3 "$here/tests/gpu/python/torch_streams.py" "$room/socket" "$room/pid"
	rm "$room/kept"
	kill "$(cat "$room/pid")"
	grep '^# ' "$log" | sed 's/^#/   /'
}

streams() { streams_as streams; }

expandable_streams() { streams_as expandable_streams; }

stages() {
	tap stages 240 python3 "$here/tests/gpu/python/torch_stages.py" "$room/socket"
	grep '^# ' "$log" | sed 's/^#/   /'
}

torch_table() {
	plain torch-table 200 python3 "$here/tests/gpu/python/torch_table.py" "$room/socket"
	sed 's/^/    /' "$log"
}

sanitize() {
	if ! command -v compute-sanitizer >/dev/null; then
		say sanitize skipped "there is no compute-sanitizer"
		return
	fi
	for tool in memcheck racecheck synccheck initcheck; do
		plain "sanitize-$tool" 140 compute-sanitizer --tool "$tool" --error-exitcode 9 \
			"$here/bin/transforms" "${SANITIZED_TRANSFORMS:-40}"
	done
}

# cpu_rows NAME ARGUMENT...: of bench, into NAME.json, and as tables into NAME.log.
cpu_rows() {
	name=$1
	shift
	plain "$name" 900 sh -c 'bench=$0 json=$1; shift; "$bench" --json "$@" >"$json" && "$bench" --load "$json"' \
		"$here/bin/bench" "$logs/$name.json" --isa=all "$@"
	sed -n '/^ratios to memcpy/,/^$/p' "$log" | sed '/^$/q; s/^/    /'
}

cpu() {
	lscpu >"$logs/lscpu.log"
	cpu_rows cpu-random --random ${RANDOM_ROWS:-1 200}
	cpu_rows cpu-rows
	if ! python3 -c 'import numpy' 2>/dev/null; then
		say cpu-compare skipped "there is no NumPy"
		return
	fi
	plain cpu-compare 900 python3 "$here/compare_cpu.py" --random ${COMPARED_ROWS:-1 60} --seconds=400 \
		--out="$logs/cpu-compare.json"
	sed -n 's/^|/    |/p' "$log" | sed '/| what |/,$d'
}

if [ "$what" = cpu ]; then
	cpu
	[ $failures = 0 ]
	exit
fi
"$here/bin/transforms" 0 >"$logs/device.log" 2>&1
if grep -q '^1\.\.0 # SKIP' "$logs/device.log"; then
	say "$what" skipped "$(sed -n 's/^1\.\.0 # SKIP //p' "$logs/device.log")"
	exit 0
fi
nvidia-smi >>"$logs/device.log" 2>&1
case $what in
all) check; bench; offload; fairness; sanitize; python ;;
*) $what ;;
esac
[ $failures = 0 ]
