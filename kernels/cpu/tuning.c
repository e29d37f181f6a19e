/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's sizes and times, each with its reason. */
#include "tuning.h"

#include <stdbool.h>

#include "kernels/plan/plan.h"
#include "watcher.h"

static struct cpu_tuning forced;
static bool is_forced;

struct cpu_tuning cpu_tuning_get(void)
{
	if (is_forced)
		return forced;
	return (struct cpu_tuning){
		.isa = cpu_isa_best(),
		/* Done by the time that a thread had woken up for it: a copy of 64 KiB. */
		.inline_bytes = 128 << 10,
		/* Both sides fit the first cache, and the machine does not forget what it was asked for. */
		.fetch_bytes = 16 << 10,
		/* A look takes as long as memory takes to answer: of memcpy's speed, without and with it, 5
		 * KiB 0.61 and 0.44, 8 KiB 0.63 and 0.73. */
		.probe_bytes = 6 << 10,
		/* Some microseconds: well over the cost of handing it to another thread. */
		.piece_least = 64 << 10,
		.piece_most = PLAN_PIECE_BYTES,
		/* As long as it takes to wake a thread on another CPU, where that is slow. */
		.awake_ns = 50000,
		/* The tables of a tile take some microseconds. */
		.tiled_bytes = 16 << 10,
		/* Little of a larger destination is still in a cache when its owner looks at it, and a line
		 * that is written past the cache is not read first. */
		.stream_bytes = 8 << 20,
		/* In the first caches 30, in the last one 40 to 60, in memory 80 to 700 ns. */
		.cold_ns = 75,
		/* As many as the kernel takes. */
		.wait_words = WATCHER_MOST_WORDS,
	};
}

void cpu_tuning_force(const struct cpu_tuning *tuning)
{
	is_forced = tuning;
	if (tuning)
		forced = *tuning;
}
