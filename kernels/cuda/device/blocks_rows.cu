/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the blocks of a list that are each one run of bytes on both sides. Addresses and sizes are multiples
 * of 16. Each warp takes one part of a run at a time. With as many bytes in flight as registers can hold,
 * this is faster than bulk copies of the TMA (tests/bench/EXPERIMENTS.md). */
#include "many.cuh"
#include "row_copy.cuh"

namespace
{

/* Copies the slots of this thread block. The slots of a list block are its parts of ROW_BYTES. All lanes of a
 * warp read the list's entry at the same time. */
template <typename ENTRIES> DEVICE void copy_rows(const blocks_rows_args &args, const ENTRIES &entries)
{
	constexpr uint32_t warps = ROWS_THREADS / 32;

	grid_wait();
	for (uint64_t slot = (uint64_t)blockIdx.x * warps + threadIdx.x / 32; slot < args.slots;
	     slot += (uint64_t)gridDim.x * warps) {
		uint64_t number = slot;
		list_place block = { args.dst, args.src, 0, 0, 0, true };

		find_listed(args.list, entries, number, threadIdx.x % 32 == 0, block);
		if (!block.there)
			continue;
		const uint64_t start = number * ROW_BYTES, left = args.run - start;
		const uint32_t bytes = (uint32_t)(left < ROW_BYTES ? left : ROW_BYTES);

		copy_chunks<1, -1, 1>({ block.dst + start, block.src + start, 0, bytes / 16, 0, 0, 0, 0 });
	}
}

} // namespace

KERNEL(ROWS_THREADS, 1) blocks_rows(const GRID_CONSTANT struct blocks_rows_args args)
{
	copy_rows(args, entries_in_memory());
}

KERNEL(ROWS_THREADS, 1) blocks_rows_short(const GRID_CONSTANT struct blocks_rows_short_args args)
{
	copy_rows(args.blocks, entries_enclosed{ args.entries });
}

KERNEL(ROWS_THREADS, 1) blocks_rows_long(const GRID_CONSTANT struct blocks_rows_long_args args)
{
	copy_rows(args.blocks, entries_enclosed{ args.entries });
}
