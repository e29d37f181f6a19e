#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make kernel-report makes of ptxas's words: a line for each kernel, and failure when one spills or is missing.
set -u
: "${TEST_SRCDIR:?run by make check}"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-report-XXXXXX") || exit 99
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# kernel NAME TARGET REGISTERS STACK STORES LOADS: as ptxas -v says it.
kernel() {
	cat <<-TEXT
		ptxas info    : 0 bytes gmem
		ptxas info    : Compiling entry function '$1' for '$2'
		ptxas info    : Function properties for $1
		    $4 bytes stack frame, $5 bytes spill stores, $6 bytes spill loads
		ptxas info    : Used $3 registers, used 1 barriers, $4 bytes cumulative stack size, 48 bytes smem
		ptxas info    : Compile time = 21.719 ms
	TEXT
}

# outcome WANTED WHAT [LINE]: of the report of what was said; LINE is in its table, where spaces do not matter.
outcome() {
	n=$((n + 1))
	"${AWK:-awk}" -v targets='sm_90a sm_100a' -f "$TEST_SRCDIR/kernels/cuda/device/report.awk" \
		"$scratch/said" >"$scratch/out" 2>"$scratch/err"
	rc=$?
	if [ $((rc != 0)) = "$1" ] && { [ -z "${3:-}" ] || tr -s ' ' <"$scratch/out" | grep -qx "$3 *"; }; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2: exit status $rc"
		sed 's/^/# /' "$scratch/out" "$scratch/err"
	fi
}

# said "KERNEL's words"...: the compiler's output.
said() {
	for words in "$@"; do
		kernel $words
	done >"$scratch/said"
}

n=0
echo 1..7
said "one sm_90a 40 0 0 0" "one sm_100a 88 16 0 0"
outcome 0 "registers, warps, shared memory and stack, and no complaint" "one 40 51 48 0 0 88 23 48 16 0"
said "one sm_90a 40 0 0 0" "one sm_100a 255 8 12 0"
outcome 1 "a store that spills" "one 40 51 48 0 0 255 8 48 8 12"
said "one sm_90a 40 8 0 24" "one sm_100a 40 0 0 0"
outcome 1 "a load, for the first target" "one 40 51 48 8 24 40 51 48 0 0"
said "one sm_90a 40 0 0 0" "one sm_100a 40 0 0 0" "two sm_90a 16 0 0 0" "two sm_100a 64 8 4 8"
outcome 1 "the last kernel" "two 16 64 48 0 0 64 32 48 8 12"
said "one sm_90a 40 0 0 0" "one sm_100a 40 0 0 0" "two sm_90a 40 0 0 0"
outcome 1 "a kernel that a target lacks" "two 40 51 48 0 0 not there"
said "one sm_90a 40 0 0 0"
outcome 1 "a target without kernels" "one 40 51 48 0 0 not there"
said
outcome 1 "nothing"
