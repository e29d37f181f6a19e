#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The service as a neighbour: a benchmark and a tmad of its own, without NVIDIA's Multi-Process Service and, where
# that is installed, with one of its own, under which the process that computes leaves four multiprocessors free.
#
#   neighbour.sh BIN [OPTION...]     BIN: the folder of tmad, the benchmark and compute; OPTIONs are the benchmark's
#
# By environment: BENCHMARK, bench_neighbour unless it is bench_offload; MPS_CONTROL, the path of
# nvidia-cuda-mps-control. Everything that it starts has ended when it ends.
set -u
bin=$1
shift
room=$(mktemp -d) || exit 1
tmad='' failed=0
benchmark=${BENCHMARK:-bench_neighbour}
keep_free=4 # multiprocessors
mps=${MPS_CONTROL:-$(PATH=$PATH:/usr/bin:/usr/local/nvidia/bin command -v nvidia-cuda-mps-control)}
CUDA_MPS_PIPE_DIRECTORY=$room/none CUDA_MPS_LOG_DIRECTORY=$room/log
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE

# end PID asks the process to end, and kills it after ten seconds.
end() {
	kill "$1" 2>/dev/null
	for _ in $(seq 100); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null
}

stop_tmad() {
	[ -z "$tmad" ] && return
	end "$tmad"
	wait "$tmad" 2>/dev/null
	tmad=''
}

start_mps() {
	CUDA_MPS_PIPE_DIRECTORY=$room/pipe
	mkdir -p "$room/pipe" "$room/log"
	timeout 20 "$mps" -d >"$room/control" 2>&1
}

stop_mps() {
	[ -d "$room/pipe" ] || return
	echo quit | timeout 20 "$mps" >/dev/null 2>&1
	pid=$(cat "$room/pipe/nvidia-cuda-mps-control.pid" 2>/dev/null) && [ -n "$pid" ] && end "$pid"
	CUDA_MPS_PIPE_DIRECTORY=$room/none
}

finish() {
	stop_tmad
	stop_mps
	rm -rf "$room"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# measure NAME [OPTION...] runs the benchmark with a separate service.
measure() {
	name=$1
	shift
	"$bin/tmad" --config= --engine=cuda --socket="$room/$name" 2>"$room/$name.log" &
	tmad=$!
	for _ in $(seq 300); do
		[ -S "$room/$name" ] && break
		kill -0 $tmad 2>/dev/null || break
		sleep 0.1
	done
	timeout -k 5 200 "$bin/$benchmark" "$@" "$room/$name"
	rc=$?
	stop_tmad
	[ $rc = 0 ] && return
	echo "$benchmark failed, exit $rc; its tmad:"
	cat "$room/$name.log"
	failed=1
}

echo "without MPS"
measure alone "$@"
echo
if [ -z "$mps" ]; then
	echo "with MPS: not measured, there is no nvidia-cuda-mps-control"
elif start_mps; then
	echo "with MPS, $keep_free multiprocessors kept free"
	measure mps --keep-free $keep_free "$@"
	stop_mps
else
	echo "with MPS: not measured, it does not start: $(tail -n 1 "$room/control")"
fi
exit $failed
