#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the service on a GPU: files that tmactl makes with it equal those of the CPU engine, byte for byte. Output is
# TAP.
#
#   service.sh TMAD TMACTL
set -u
tmad=$1 tmactl=$2
work=$(mktemp -d) || exit 1
pids=

finish() {
	for pid in $pids; do kill "$pid"; done 2>/dev/null
	wait
	rm -rf "$work"
}
trap finish EXIT

# serve ENGINE starts the service and succeeds if it listens within 20 seconds.
serve() {
	"$tmad" --engine="$1" --socket="$work/$1.socket" 2>"$work/$1.log" &
	pid=$!
	for _ in $(seq 200); do
		[ -S "$work/$1.socket" ] && pids="$pids $pid" && return
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	pids="$pids $pid"
	return 1
}

# npy FILE DESCR SHAPE BYTES writes a file of random bytes with a header of 128 bytes.
npy() {
	{
		printf '\223NUMPY\001\000\166\000'
		printf '%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
		head -c "$4" /dev/urandom
	} >"$1"
}

count=0 failed=0
# ok NAME reports the result of the command before it.
ok() {
	[ $? = 0 ] && verdict=ok || { verdict='not ok' failed=1; }
	count=$((count + 1))
	echo "$verdict $count - $1"
}

# compare DESCR SHAPE BYTES [OPTION...]
compare() {
	descr=$1 shape=$2 bytes=$3
	shift 3
	npy "$work/in.npy" "$descr" "$shape" "$bytes" &&
		"$tmactl" -q --socket "$work/cuda.socket" copy "$work/in.npy" "$work/cuda.npy" "$@" 2>&1 &&
		"$tmactl" -q --socket "$work/cpu.socket" copy "$work/in.npy" "$work/cpu.npy" "$@" 2>&1 &&
		cmp "$work/cuda.npy" "$work/cpu.npy"
	ok "$descr ($shape) $*"
}

serve cuda || {
	echo "1..0 # SKIP $(tail -n 1 "$work/cuda.log")"
	exit 0
}
serve cpu || {
	echo "Bail out! $(tail -n 1 "$work/cpu.log")"
	exit 1
}
"$tmactl" --socket "$work/cuda.socket" info | sed 's/^/# /'
"$tmactl" --socket "$work/cuda.socket" info | grep -Eq '^engine +cuda'
ok "the engine is cuda"
compare '|u1' '1048576,' 1048576
compare '<f4' '1024, 768' 3145728 --permute 1,0
compare '<f2' '513, 1027' 1053702 --permute 1,0
compare '|u1' '8, 56, 56, 64' 1605632 --permute 0,3,1,2
compare '<f8' '64, 32, 48' 786432 --permute 2,0,1
compare '<f4' '512, 512' 1048576 --pad 4:4,4:4
compare '<f4' '512, 511' 1046528 --pad 1:3,2:1 --value 7
compare '<f2' '300, 400' 240000 --pad 2:2,2:2 --mode reflect
compare '|u1' '700, 900' 630000 --pad=-3:-5,-1:-2
compare '<i4' '4, 128, 256' 524288 --permute 0,2,1 --pad 0:0,1:1,1:1 --mode edge
"$tmactl" --socket "$work/cuda.socket" stats | sed 's/^/# /'
echo "1..$count"
exit $failed
