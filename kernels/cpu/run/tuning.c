/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's sizes and times, each with its reason. */
#include "tuning.h"

#include <stdbool.h>

#include "kernels/cpu/plan/cpu_choice.h"
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
		/* A look takes as long as memory takes to answer, and what is smaller is asked for beforehand
		 * on both sides. 100 random rows of 4 to 16 KiB, geometric mean of memcpy's speed, from 6 KiB
		 * on 0.415, from here on 0.468. */
		.probe_bytes = 16 << 10,
		/* Some microseconds: well over the cost of handing it to another thread. */
		.piece_least = 64 << 10,
		.piece_most = CPU_PIECE_BYTES,
		/* Waking a thread on another CPU takes so long, where that is slow. */
		.awake_ns = 50000,
		/* A wake takes whoever does it some microseconds, the thread that submits too; those that are
		 * woken wake more. */
		.more_wakes = 3,
		/* The tables of a tile take some microseconds. */
		.tiled_bytes = 16 << 10,
		/* Little of a larger destination is still in a cache when its owner looks at it, and a line
		 * that is written past the cache is not read first. */
		.stream_bytes = CPU_STREAM_BYTES,
		/* On Zen 3 with small pages, median and the middle 90 %: in the first caches 30 (30 to 41),
		 * in the last one 130 (40 to 321), in memory 550 (381 to 851). So most of what only the last
		 * one has is taken for memory's; with 200 uint8 [256,256] went from 0.62 to 0.60 of memcpy's
		 * speed and a pad of as much from 0.66 to 0.61. Not measured elsewhere. */
		.cold_ns = 75,
		/* The kernel takes no more. */
		.wait_words = WATCHER_MOST_WORDS,
	};
}

void cpu_tuning_force(const struct cpu_tuning *tuning)
{
	is_forced = tuning;
	if (tuning)
		forced = *tuning;
}
