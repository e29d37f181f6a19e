/* SPDX-License-Identifier: Apache-2.0 */
/* Copies tiles as tile_copy does, with a border that is not zero. The border is written into the tiles in
 * shared memory, between load and store, so that the destination is written only once.
 *
 *     load: the window's part of a tile, zeros around it  ->  patch: the border's elements  ->  store
 *
 * One thread loads and stores as in tile_copy, and PAD_THREADS others patch. In modes other than constant, a
 * tile is not patched along a dimension of which it has a single index, but loaded from the source index that
 * this one maps to.
 */
#include "pad.cuh"
#include "strided.cuh"
#include "tile_copy.cuh"

namespace
{

/* A tile and its part of the window. Along each dimension the tile has n indices, beginning at `start` in the
 * destination, of which [low, high) are in the window. rim is true if the tile has a border. */
struct pad_note {
	int64_t start[ARGS_MAP_RANK];
	int n[ARGS_MAP_RANK];
	int low[ARGS_MAP_RANK];
	int high[ARGS_MAP_RANK];
	bool rim;
};

static_assert(sizeof(struct pad_note) + sizeof(barrier) <= PAD_NOTE_BYTES, "as much is asked for");

/* The work of the thread that loads and stores. */
struct pad_walk {
	const tile_pad_args &args;
	tile_ring<COPY_STAGES> &ring;
	pad_note *notes;
	barrier *patched; /* the barrier of each stage completes when the stage's tile has been patched */
	copy_walk copy;

	DEVICE_MEMBER void load(uint32_t i)
	{
		pad_note &note = notes[i % COPY_STAGES];
		uint32_t index[ARGS_MAP_RANK];
		int32_t at[ARGS_MAP_RANK];

		note.rim = false;
		tile_index(blockIdx.x + i * gridDim.x, args.copy.grid, index);
#pragma unroll
		for (int d = 0; d < ARGS_MAP_RANK; d++) {
			const strided_dim &dim = args.dim[d];
			const int64_t start = (int64_t)index[d] * args.box[d];
			const bool found = args.box[d] == 1 && args.mode != PAD_RULE_CONSTANT;
			const int n = up_to(dim.n - start, (int)args.box[d]);

			note.start[d] = start;
			note.n[d] = n;
			note.low[d] = found ? 0 : up_to(dim.before - start, n);
			note.high[d] = found ? 1 : up_to(dim.before + dim.source - start, n);
			note.rim = note.rim || note.low[d] > 0 || note.high[d] < n;
			at[d] = (int32_t)(found ? source_index(dim, args.mode, start) : start - dim.before);
		}
		at[0] *= args.scale;
		barrier_arrive_expect(ring.arrival(i), args.copy.load_bytes);
		load_tile(ring.tile(i), &args.copy.load, args.copy.rank, at, ring.arrival(i));
	}

	DEVICE_MEMBER void store(uint32_t i)
	{
		barrier_wait(&patched[i % COPY_STAGES], i / COPY_STAGES & 1);
		copy.store(i);
	}
};

/* A part of a tile's border: `n` indices of dimension `own` beginning with `first`, the window's indices of
 * dimensions outside it, and all indices of those inside (border.h). */
struct pad_box {
	uint32_t own;
	int first;
	int n;

	DEVICE_MEMBER int first_of(const pad_note &note, uint32_t d) const
	{
		return d < own ? 0 : d > own ? note.low[d] : first;
	}

	DEVICE_MEMBER int n_of(const pad_note &note, uint32_t d) const
	{
		return d < own ? note.n[d] : d > own ? note.high[d] - note.low[d] : n;
	}
};

template <int E>
DEVICE void patch_box(const tile_pad_args &args, const pad_note &note, const pad_box &box,
                      unsigned char *tile, uint32_t patcher)
{
	using type = typename element<E>::type;
	uint32_t count = 1;

	for (uint32_t d = 0; d < args.copy.rank; d++)
		count *= (uint32_t)box.n_of(note, d);
	for (uint32_t begin = patcher; begin < count; begin += PAD_THREADS * PAD_BATCH) {
		type value[PAD_BATCH];
		uint32_t to[PAD_BATCH];

#pragma unroll
		for (uint32_t u = 0; u < PAD_BATCH; u++) {
			uint32_t left = begin + u * PAD_THREADS, step = E;
			uint64_t from = args.src;

			to[u] = 0;
			if (left >= count)
				break;
			for (uint32_t d = 0; d < args.copy.rank; d++) {
				const uint32_t n = (uint32_t)box.n_of(note, d), q = left / n;
				const uint32_t at = left - q * n + (uint32_t)box.first_of(note, d);

				left = q;
				to[u] += at * step;
				step *= args.box[d];
				if (args.mode != PAD_RULE_CONSTANT)
					from += (uint64_t)(source_index(args.dim[d], args.mode,
					                                note.start[d] + at) *
					                   args.dim[d].src);
			}
			value[u] = args.mode == PAD_RULE_CONSTANT ? *(const type *)args.pattern
			                                          : global_read((const type *)from);
		}
#pragma unroll
		for (uint32_t u = 0; u < PAD_BATCH; u++)
			if (begin + u * PAD_THREADS < count)
				tile_write<type>(tile + to[u], value[u]);
	}
}

template <int E>
DEVICE void patch_tiles(const tile_pad_args &args, const pad_walk &walk, uint32_t tiles, uint32_t patcher)
{
	for (uint32_t i = 0; i < tiles; i++) {
		const pad_note &note = walk.notes[i % COPY_STAGES];

		walk.ring.wait_full(i);
		for (uint32_t d = 0; note.rim && d < args.copy.rank; d++) {
			if (note.low[d] > 0)
				patch_box<E>(args, note, { d, 0, note.low[d] }, walk.ring.tile(i), patcher);
			if (note.high[d] < note.n[d])
				patch_box<E>(args, note, { d, note.high[d], note.n[d] - note.high[d] },
				             walk.ring.tile(i), patcher);
		}
		fence_proxy_async(); /* orders the writes before the TMA's read */
		barrier_arrive(&walk.patched[i % COPY_STAGES]);
	}
}

template <int E> DEVICE void pad_tiles(const tile_pad_args &args, unsigned char *shared)
{
	tile_ring<COPY_STAGES> ring(shared, args.copy.tile_bytes);
	barrier *patched = ring.empty + COPY_STAGES;
	pad_walk walk = { args, ring, (pad_note *)(patched + COPY_STAGES), patched, { args.copy, ring } };
	const uint32_t tiles = own_tiles(args.copy.tiles);

	if (threadIdx.x == 0) {
		for (int s = 0; s < COPY_STAGES; s++)
			barrier_init(&patched[s], PAD_THREADS);
		ring.init(1);
	}
	__syncthreads();
	grid_wait();
	if (threadIdx.x >= 32)
		patch_tiles<E>(args, walk, tiles, threadIdx.x - 32);
	else if (threadIdx.x == 0)
		copy_tiles(ring, walk, tiles);
}

} // namespace

#define TILE_PAD(e)                                                                                       \
	KERNEL(PAD_THREADS + WARP_THREADS, 1) tile_pad_##e(const GRID_CONSTANT struct tile_pad_args args) \
	{                                                                                                 \
		DYNAMIC_SHARED(shared);                                                                   \
		pad_tiles<e>(args, shared);                                                               \
	}
BY_ELEMENT(TILE_PAD)
