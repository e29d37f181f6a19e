/* Blocks of a list, and runs of a batch, by the unit: contiguous ones by its plain copies, a piece a lane;
 * others by maps that count blocks, and layers, as further dimensions.
 *
 * What a tile is, and where it goes, is looked up once, COPY_AHEAD tiles before it is stored, and noted in
 * shared memory: the list may be others' to write.
 */
#include "many.cuh"
#include "pipeline.cuh"
#include "tuning.h"

/* ---- Pieces: up to 32 of them are a tile --------------------------------------------------------------- */

namespace
{

struct piece {
	uint64_t dst;
	uint64_t src;
	uint32_t bytes; /* 0: none */
};

struct piece_note {
	uint64_t dst;
	uint64_t bytes;
};

DEVICE piece piece_of(const blocks_bulk_args &args, uint64_t number)
{
	list_place place = { args.dst, args.src, 0, 0, 0, true };

	find_listed(args.list, number, true, place);
	const uint64_t start = number * args.chunk;
	const uint32_t bytes = (uint32_t)(args.run - start < args.chunk ? args.run - start : args.chunk);

	return { place.dst + start, place.src + start, place.there ? bytes : 0 };
}

DEVICE piece piece_of(const runs_args &args, uint64_t number)
{
	const run_entry run = find_run(args, number);
	const uint64_t start = (number - run.first) * args.chunk, left = run.bytes - start;

	return { run.dst + start, run.src + start, (uint32_t)(left < args.chunk ? left : args.chunk) };
}

/* Every lane has its own place in each tile, and waits for its own stores only. */
template <typename ARGS> struct piece_walk {
	const ARGS &args;
	tile_ring<COPY_STAGES> &ring;
	piece_note *notes; /* of this lane; the next tile's 32 further */

	DEVICE_MEMBER unsigned char *place(uint32_t i)
	{
		return ring.tile(i) + threadIdx.x * args.chunk;
	}

	DEVICE_MEMBER void load(uint32_t i)
	{
		const uint64_t tile = blockIdx.x + (uint64_t)i * gridDim.x;
		const uint64_t number = tile * args.pieces + threadIdx.x;
		piece p = { 0, 0, 0 };

		if (threadIdx.x < args.pieces && number < args.parts)
			p = piece_of(args, number);
		notes[i % COPY_STAGES * 32] = { p.dst, p.bytes };
		barrier_arrive_expect(ring.arrival(i), p.bytes);
		if (p.bytes > 0)
			load_bulk(place(i), (const void *)p.src, p.bytes, ring.arrival(i));
	}

	DEVICE_MEMBER void store(uint32_t i)
	{
		const piece_note note = notes[i % COPY_STAGES * 32];

		if (note.bytes > 0)
			store_bulk((void *)note.dst, place(i), (uint32_t)note.bytes);
		store_commit();
	}
};

template <typename ARGS> DEVICE void copy_pieces(const ARGS &args, unsigned char *shared)
{
	tile_ring<COPY_STAGES> ring(shared, args.pieces * args.chunk);
	piece_note *notes = (piece_note *)(ring.empty + COPY_STAGES);
	piece_walk<ARGS> walk = { args, ring, notes + threadIdx.x };

	if (threadIdx.x == 0) {
		for (int s = 0; s < COPY_STAGES; s++)
			barrier_init(&ring.full[s], 32);
		barrier_init_fence();
	}
	__syncthreads();
	copy_tiles(ring, walk, own_tiles(args.tiles));
}

} // namespace

KERNEL(32, 1) blocks_bulk(const GRID_CONSTANT struct blocks_bulk_args args)
{
	DYNAMIC_SHARED(shared);
	copy_pieces(args, shared);
}

KERNEL(32, 1) runs_bulk(const GRID_CONSTANT struct runs_args args)
{
	DYNAMIC_SHARED(shared);
	copy_pieces(args, shared);
}

/* ---- Maps ---------------------------------------------------------------------------------------------- */

namespace
{

struct block_note {
	uint32_t number; /* of the tile in its block */
	uint32_t dst;
	uint32_t layer;
	uint32_t there;
};

struct block_walk {
	const blocks_copy_args &args;
	tile_ring<COPY_STAGES> &ring;
	block_note *notes;

	/* at[d] of the tile, and of the block and the layer after it. */
	DEVICE_MEMBER int32_t coordinate(int d, int32_t at, uint32_t block, uint32_t layer)
	{
		const int own = (int)args.block_dim;

		return d < own ? at : d == own ? (int32_t)block : (int32_t)layer;
	}

	DEVICE_MEMBER void load(uint32_t i)
	{
		const tile_copy_args &copy = args.copy;
		uint64_t number = blockIdx.x + (uint64_t)i * gridDim.x;
		const list_item item = find_item(args.list, number, true);
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

} // namespace

KERNEL(32, 1) blocks_copy(const GRID_CONSTANT struct blocks_copy_args args)
{
	DYNAMIC_SHARED(shared);
	tile_ring<COPY_STAGES> ring(shared, args.copy.tile_bytes);
	block_walk walk = { args, ring, (block_note *)(ring.empty + COPY_STAGES) };

	if (threadIdx.x != 0)
		return;
	tensor_map_prefetch(&args.copy.load);
	tensor_map_prefetch(&args.copy.store);
	ring.init(1);
	copy_tiles(ring, walk, own_tiles(args.copy.tiles));
}
