/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, by the TMA, the blocks of a list, each of which consists of more than one run of bytes. The tensor
 * maps count blocks and, if there are several, layers as further dimensions.
 *
 * The block of a tile and the tile's place are looked up once, when the tile is loaded, and noted in shared
 * memory for the store. The list may change in between, because clients can write to it.
 */
#include "many.cuh"
#include "tile_copy.cuh"

namespace
{

struct block_note {
	uint32_t number; /* number of the tile in its block */
	uint32_t dst;
	uint32_t layer;
	uint32_t there;
};

static_assert(sizeof(block_note) == COPY_NOTE_BYTES, "as much is asked for");

template <typename ENTRIES> struct block_walk {
	const blocks_copy_args &args;
	ENTRIES entries;
	tile_ring<COPY_STAGES> &ring;
	block_note *notes;

	/* Returns the tile's coordinate in dimension d: `at`, or the number of the block or of the layer,
	 * which follow the block's own dimensions. */
	DEVICE_MEMBER int32_t coordinate(int d, int32_t at, uint32_t block, uint32_t layer)
	{
		const int own = (int)args.block_dim;

		return d < own ? at : d == own ? (int32_t)block : (int32_t)layer;
	}

	DEVICE_MEMBER void load(uint32_t i)
	{
		const tile_copy_args &copy = args.copy;
		uint64_t number = blockIdx.x + (uint64_t)i * gridDim.x;
		const list_item item = find_item(args.list, entries, number, true);
		uint32_t index[ARGS_MAP_RANK];
		int32_t at[ARGS_MAP_RANK];

		notes[i % COPY_STAGES] = { (uint32_t)number, (uint32_t)item.dst, (uint32_t)item.layer,
			                   item.there };
		barrier_arrive_expect(ring.arrival(i), item.there ? copy.load_bytes : 0);
		if (!item.there)
			return;
		tile_index((uint32_t)number, copy.grid, index);
#pragma unroll
		for (int d = 0; d < ARGS_MAP_RANK; d++)
			at[d] = coordinate(d, (int32_t)index[d] * copy.load_step[d] + copy.load_shift[d],
			                   (uint32_t)item.src, (uint32_t)item.layer);
		load_tile(ring.tile(i), &copy.load, copy.rank, at, ring.arrival(i));
	}

	DEVICE_MEMBER void store(uint32_t i)
	{
		const tile_copy_args &copy = args.copy;
		const block_note note = notes[i % COPY_STAGES];
		uint32_t index[ARGS_MAP_RANK], again[ARGS_MAP_RANK];
		int32_t at[ARGS_MAP_RANK];

		tile_index(note.number, copy.grid, index);
		for (uint32_t r = 0; note.there && r < copy.repeats; r++) {
			tile_index(r, copy.repeat, again);
#pragma unroll
			for (int d = 0; d < ARGS_MAP_RANK; d++)
				at[d] = coordinate(d,
				                   (int32_t)index[d] * copy.store_step[d] +
				                       copy.store_shift[d] + (int32_t)again[d],
				                   note.dst, note.layer);
			store_tile(&copy.store, copy.rank, at, ring.tile(i));
		}
		store_commit();
	}
};

template <typename ENTRIES>
DEVICE void copy_blocks(const blocks_copy_args &args, const ENTRIES &entries, unsigned char *shared)
{
	tile_ring<COPY_STAGES> ring(shared, args.copy.tile_bytes);
	block_walk<ENTRIES> walk = { args, entries, ring, (block_note *)(ring.empty + COPY_STAGES) };

	if (threadIdx.x != 0)
		return;
	tensor_map_prefetch(&args.copy.load);
	tensor_map_prefetch(&args.copy.store);
	ring.init(1);
	grid_wait();
	copy_tiles(ring, walk, own_tiles(args.copy.tiles));
}

} // namespace

KERNEL(WARP_THREADS, 1) blocks_copy(const GRID_CONSTANT struct blocks_copy_args args)
{
	DYNAMIC_SHARED(shared);
	copy_blocks(args, entries_in_memory(), shared);
}

KERNEL(WARP_THREADS, 1) blocks_copy_short(const GRID_CONSTANT struct blocks_copy_short_args args)
{
	DYNAMIC_SHARED(shared);
	copy_blocks(args.blocks, entries_enclosed{ args.entries }, shared);
}

KERNEL(WARP_THREADS, 1) blocks_copy_long(const GRID_CONSTANT struct blocks_copy_long_args args)
{
	DYNAMIC_SHARED(shared);
	copy_blocks(args.blocks, entries_enclosed{ args.entries }, shared);
}
