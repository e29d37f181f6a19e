/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and times of the CPU engine, with the reason for each. */
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
		/* A job of this size, which is a copy of 64 KiB, is done by the time that a thread would have
		 * woken up for it. */
		.inline_bytes = 128 << 10,
		/* Both sides fit the first-level cache, and the CPU does not drop the prefetches. */
		.fetch_bytes = 16 << 10,
		/* The check takes as long as memory takes to answer, and smaller jobs are prefetched on both
		 * sides anyway. 100 random cases of 4 to 16 KiB: the geometric mean of the speed relative to
		 * memcpy is 0.415 if the check starts at 6 KiB, and 0.468 if it starts here. */
		.probe_bytes = 16 << 10,
		/* Moving this takes some microseconds, well over the cost of handing it to another thread. */
		.piece_least = 64 << 10,
		.piece_most = CPU_PIECE_BYTES,
		/* Waking a thread on another CPU takes this long on machines where it is slow. */
		.awake_ns = 50000,
		/* Waking a thread costs the caller, which may be the submitting thread, some microseconds.
		 * Threads that wake up wake others. */
		.more_wakes = 3,
		/* Making the tables of a tile takes some microseconds. */
		.tiled_bytes = 16 << 10,
		/* Little of a larger destination would still be in a cache when its owner looks at it, and a
		 * line that is written past the cache is not read first. */
		.stream_bytes = CPU_STREAM_BYTES,
		/* Measured on Zen 3 with small pages, in ns (median, and range of the middle 90 %): 30 (30 to
		 * 41) in the first caches, 130 (40 to 321) in the last one, 550 (381 to 851) in memory. So
		 * most of what only the last cache holds counts as memory. With 200 instead, the speed
		 * relative to memcpy fell from 0.62 to 0.60 for uint8 [256,256], and from 0.66 to 0.61 for a
		 * pad of the same size. Not measured on other machines. */
		.cold_ns = 75,
		/* This is the most that futex_waitv takes. */
		.wait_words = WATCHER_MOST_WORDS,
	};
}

void cpu_tuning_force(const struct cpu_tuning *tuning)
{
	is_forced = tuning;
	if (tuning)
		forced = *tuning;
}
