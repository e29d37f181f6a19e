# SPDX-License-Identifier: Apache-2.0
# Prints what ptxas -v says of each kernel, for each of the targets (-v targets="sm_90a ..."), as one table. Fails when
# a kernel spills registers, when a target lacks a kernel that another has, or when nothing was compiled. Column "warps"
# is the number of warps, at most 64, for which a multiprocessor has registers. Shared memory may allow fewer.

BEGIN { n_targets = split(targets, target_of, " ") }

# Returns the number that precedes the words in a line, as in before(" registers", $0); 0 if there is none.
function before(words, line)
{
	return match(line, "[0-9]+" words) ? substr(line, RSTART, RLENGTH) + 0 : 0
}

# Returns how many warps have enough registers. A multiprocessor has 65536; a warp gets a multiple of 256 of them.
function warps(registers)
{
	registers = int((registers + 7) / 8) * 8 * 32
	return 65536 / registers > 64 ? 64 : int(65536 / registers)
}

/Compiling entry function/ {
	split($0, quoted, "'")
	kernel = quoted[2]
	target = quoted[4]
	if (!(kernel in kernels)) {
		kernels[kernel]
		kernel_of[++n_kernels] = kernel
	}
	next
}

# There is also such a line for each function that the kernel calls.
/bytes spill stores/ {
	spilled[kernel, target] += before(" bytes spill stores", $0) + before(" bytes spill loads", $0)
	stack[kernel, target] += before(" bytes stack frame", $0)
	next
}

/Used [0-9]+ registers/ {
	registers[kernel, target] = before(" registers", $0)
	shared[kernel, target] = before(" bytes smem", $0)
	next
}

/^ptxas info/ { next }

{ print > "/dev/stderr" } # a warning or an error

END {
	printf "%-20s", ""
	for (t = 1; t <= n_targets; t++)
		printf "  %-43s", target_of[t]
	printf "\n%-20s", "kernel"
	for (t = 1; t <= n_targets; t++)
		printf "  %9s %5s %8s %8s %9s", "registers", "warps", "shared B", "stack B", "spilled B"
	printf "\n"
	for (k = 1; k <= n_kernels; k++) {
		printf "%-20s", kernel_of[k]
		for (t = 1; t <= n_targets; t++) {
			at = kernel_of[k] SUBSEP target_of[t]
			if (!(at in registers)) {
				printf "  %-43s", "not there"
				bad++
				continue
			}
			printf "  %9d %5d %8d %8d %9d", registers[at], warps(registers[at]), shared[at], stack[at],
			       spilled[at]
			bad += spilled[at] > 0
		}
		printf "\n"
	}
	if (n_kernels == 0)
		print "nothing was compiled" > "/dev/stderr"
	if (bad)
		printf "%d of them spill or are not there\n", bad > "/dev/stderr"
	exit n_kernels == 0 || bad
}
