/* SPDX-License-Identifier: Apache-2.0 */
/* Introductory examples of the TMA unit, as kernels on the functions of tma.cuh and cluster.cuh. Each block
 * has its tile at the start of its shared memory and its barriers behind it. */
#include "args.h"

#include "cluster.cuh"

namespace
{

constexpr uint32_t kThreads = 128;

/* Copies the tile's bytes, as they lie in shared memory, to global memory. All threads of the block call
 * it. */
DEVICE void dump(const unsigned char *tile, uint32_t bytes, uint64_t to)
{
	for (uint32_t i = threadIdx.x * 4; i < bytes; i += blockDim.x * 4)
		global_write((uint32_t *)(to + i), tile_read<uint32_t>(tile + i));
}

DEVICE void make_barrier(barrier *b, uint32_t arrivals)
{
	if (threadIdx.x == 0) {
		barrier_init(b, arrivals);
		barrier_init_fence();
	}
	__syncthreads();
}

/* All threads arrive on the barrier; one of them announces the bytes and then issues the load. */
DEVICE void arrive_and_load(const seed_tile_args &args, const int32_t *c, unsigned char *tile, barrier *b)
{
	if (threadIdx.x == 0) {
		barrier_arrive_expect(b, args.bytes);
		load_tile(tile, &args.map, args.rank, c, b);
	} else {
		barrier_arrive(b);
	}
}

} // namespace

/* Loads a tile in 1 to 5 dimensions. */
KERNEL(kThreads, 1) seed_load(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.span);

	make_barrier(b, blockDim.x);
	arrive_and_load(args, args.c, tile, b);
	barrier_wait(b, 0);
	dump(tile, args.span, args.bytes_at);
	__syncthreads();
	if (threadIdx.x == 0)
		barrier_inval(b);
}

/* Stores a tile in 1 to 5 dimensions. Completion is by groups, not by a barrier. */
KERNEL(kThreads, 1) seed_store(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);

	for (uint32_t i = threadIdx.x * 4; i < args.span; i += blockDim.x * 4)
		tile_write(tile + i, global_read((const uint32_t *)(args.bytes_at + i)));
	fence_proxy_async();
	__syncthreads();
	if (threadIdx.x == 0) {
		store_tile(&args.map, args.rank, args.c, tile);
		store_commit();
		store_wait<0>();
	}
}

/* Loads the tile at c, then the next one in dimension 0, with both barriers in the same place: the first is
 * invalidated before the second is made. */
KERNEL(kThreads, 1) seed_barrier_again(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.span);

	for (int32_t turn = 0; turn < 2; turn++) {
		int32_t c[5] = { args.c[0] + turn * 16, args.c[1], args.c[2], args.c[3], args.c[4] };

		make_barrier(b, blockDim.x);
		arrive_and_load(args, c, tile, b);
		barrier_wait(b, 0);
		dump(tile, args.span, args.bytes_at + turn * args.span);
		__syncthreads();
		if (threadIdx.x == 0)
			barrier_inval(b);
	}
}

/* Does the same with one barrier, whose second phase has the other parity. */
KERNEL(kThreads, 1) seed_phases(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.span);

	make_barrier(b, blockDim.x);
	for (int32_t turn = 0; turn < 2; turn++) {
		int32_t c[5] = { args.c[0] + turn * 16, args.c[1], args.c[2], args.c[3], args.c[4] };

		arrive_and_load(args, c, tile, b);
		barrier_wait(b, turn);
		dump(tile, args.span, args.bytes_at + turn * args.span);
		__syncthreads();
	}
}

/* Loads contiguous bytes without a map, adds one to each number, and stores them. */
KERNEL(kThreads, 1) seed_bulk(const GRID_CONSTANT struct seed_bulk_args args)
{
	DYNAMIC_SHARED(numbers);
	uint32_t bytes = args.n * 4;
	barrier *b = (barrier *)(numbers + bytes);
	unsigned char *share = (unsigned char *)args.data + (uint64_t)blockIdx.x * bytes;

	make_barrier(b, blockDim.x);
	if (threadIdx.x == 0) {
		barrier_arrive_expect(b, bytes);
		load_bulk(numbers, share, bytes, b);
	} else {
		barrier_arrive(b);
	}
	barrier_wait(b, 0);

	for (uint32_t i = threadIdx.x; i < args.n; i += blockDim.x)
		tile_write(numbers + i * 4, tile_read<int32_t>(numbers + i * 4) + 1);
	fence_proxy_async();
	__syncthreads();
	if (threadIdx.x == 0) {
		store_bulk(share, numbers, bytes);
		store_commit();
		store_wait_read<0>();
	}
}

/* Each block loads 4 x 4 floats, adds to each its position in the tile, and stores them. */
KERNEL(16, 1) seed_mojo(const GRID_CONSTANT struct seed_mojo_args args)
{
	DYNAMIC_SHARED(tile);
	constexpr uint32_t kBytes = 4 * 4 * sizeof(float);
	barrier *b = (barrier *)(tile + kBytes);
	const int32_t c[2] = { (int32_t)blockIdx.x * 4, (int32_t)blockIdx.y * 4 };
	uint32_t i = threadIdx.x;

	make_barrier(b, 1);
	if (threadIdx.x == 0) {
		barrier_arrive_expect(b, kBytes);
		load_tile(tile, &args.map, 2, c, b);
	}
	barrier_wait(b, 0);

	tile_write(tile + i * 4, tile_read<float>(tile + i * 4) + (float)i);
	fence_proxy_async();
	__syncthreads();
	if (threadIdx.x == 0) {
		store_tile(&args.map, 2, c, tile);
		store_commit();
		store_wait<0>();
	}
}

/* A tile of 128 rows of 64 halves: one thread loads it, and all wait for it. */
KERNEL(kThreads, 1) seed_half_tile(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);
	constexpr uint32_t kBytes = 128 * 64 * 2;
	barrier *b = (barrier *)(tile + kBytes);

	if (threadIdx.x == 0) {
		barrier_init(b, 1);
		barrier_init_fence();
		barrier_arrive_expect(b, kBytes);
		load_tile(tile, &args.map, 2, args.c, b);
		barrier_wait(b, 0);
	}
	__syncthreads();
	dump(tile, kBytes, args.bytes_at);
}

/* ---- Clusters ----------------------------------------------------------------------------------------- */

/* One block loads into the blocks that the mask names. Each of these has its own barrier for its bytes. */
KERNEL(kThreads, 1) seed_share(const GRID_CONSTANT struct seed_share_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.span);
	bool is_named = args.mask >> cluster_rank() & 1;

	for (uint32_t i = threadIdx.x * 4; i < args.span; i += blockDim.x * 4)
		tile_write(tile + i, 0xa5a5a5a5);
	fence_proxy_async();
	make_barrier(b, 1);
	if (is_named && threadIdx.x == 0)
		barrier_arrive_expect(b, args.bytes);
	cluster_sync();
	if (cluster_rank() == args.issuer && threadIdx.x == 0) {
		if (args.from)
			load_bulk_multicast(tile, (const void *)args.from, args.bytes, b,
			                    (uint16_t)args.mask);
		else
			load_tile_multicast(tile, &args.map, args.rank, args.c, b, (uint16_t)args.mask);
	}
	if (is_named)
		barrier_wait(b, 0);
	dump(tile, args.span, args.bytes_at + (uint64_t)blockIdx.x * args.span);
	cluster_sync();
}

namespace
{

/* Two barriers behind the shared memory of the copies: one for loaded bytes, one for copied bytes. */
struct copy_barriers {
	barrier *loaded;
	barrier *copied;
};

DEVICE copy_barriers start_copies(const seed_copy_args &args, unsigned char *shared)
{
	copy_barriers barriers = { (barrier *)(shared + args.span), (barrier *)(shared + args.span) + 1 };

	if (threadIdx.x == 0) {
		barrier_init(barriers.loaded, 1);
		barrier_init(barriers.copied, 1);
		barrier_init_fence();
	}
	cluster_sync();
	return barriers;
}

/* Loads the block's share. Called by one thread, which waits for the bytes. */
DEVICE void load_share(const seed_copy_args &args, unsigned char *shared, barrier *loaded)
{
	barrier_arrive_expect(loaded, args.bytes);
	load_bulk(shared + args.from, (const void *)(args.data + (uint64_t)blockIdx.x * args.bytes),
	          args.bytes, loaded);
	barrier_wait(loaded, 0);
}

} // namespace

/* Every block loads a share and copies it to the next block's shared memory, the last block to the
 * first's. */
KERNEL(kThreads, 1) seed_copy_ring(const GRID_CONSTANT struct seed_copy_args args)
{
	DYNAMIC_SHARED(shared);
	copy_barriers barriers = start_copies(args, shared);

	if (threadIdx.x == 0) {
		barrier_arrive_expect(barriers.copied, args.bytes);
		load_share(args, shared, barriers.loaded);
		copy_bulk(shared + args.to, shared + args.from, args.bytes, barriers.copied,
		          (cluster_rank() + 1) % gridDim.x);
	}
	barrier_wait(barriers.copied, 0);
	dump(shared + args.to, args.bytes, args.bytes_at + (uint64_t)blockIdx.x * args.bytes);
	cluster_sync();
}

/* Only the first block loads; every other block passes on what it received. The unit writes and reads these
 * bytes, so no fence is needed. */
KERNEL(kThreads, 1) seed_copy_chain(const GRID_CONSTANT struct seed_copy_args args)
{
	DYNAMIC_SHARED(shared);
	copy_barriers barriers = start_copies(args, shared);
	bool is_first = cluster_rank() == 0;
	uint32_t at = is_first ? args.from : args.to;

	if (threadIdx.x == 0) {
		if (is_first)
			load_share(args, shared, barriers.loaded);
		else
			barrier_arrive_expect(barriers.copied, args.bytes);
	}
	barrier_wait(is_first ? barriers.loaded : barriers.copied, 0);
	if (threadIdx.x == 0 && cluster_rank() + 1 < gridDim.x)
		copy_bulk(shared + args.to, shared + at, args.bytes, barriers.copied, cluster_rank() + 1);
	dump(shared + at, args.bytes, args.bytes_at + (uint64_t)blockIdx.x * args.bytes);
	cluster_sync();
}

/* The first block fills two stages in all blocks repeatedly: a stage as soon as every block has released
 * it. */
KERNEL(kThreads, 1) seed_stages(const GRID_CONSTANT struct seed_stages_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *full = (barrier *)(shared + 2 * args.bytes), *empty = full + 2;
	uint64_t out = args.bytes_at + (uint64_t)blockIdx.x * args.tiles * args.bytes;

	if (threadIdx.x == 0) {
		for (int s = 0; s < 2; s++) {
			barrier_init(&full[s], 1);
			barrier_init(&empty[s], gridDim.x);
		}
		barrier_init_fence();
	}
	cluster_sync();

	for (uint32_t i = 0; i < args.tiles; i++) {
		uint32_t stage = i % 2, turn = i / 2;
		unsigned char *tile = shared + stage * args.bytes;

		if (threadIdx.x == 0)
			barrier_arrive_expect(&full[stage], args.bytes);
		if (threadIdx.x == 0 && cluster_rank() == 0) {
			if (turn > 0)
				barrier_wait_cluster(&empty[stage], (turn - 1) & 1);
			load_bulk_multicast(tile, (const void *)(args.data + (uint64_t)i * args.bytes),
			                    args.bytes, &full[stage], (uint16_t)((1u << gridDim.x) - 1));
		}
		barrier_wait(&full[stage], turn & 1);
		dump(tile, args.bytes, out + (uint64_t)i * args.bytes);
		__syncthreads();
		if (threadIdx.x == 0)
			barrier_arrive_block(&empty[stage], 0);
	}
	cluster_sync();
}

/* ---- Boxes -------------------------------------------------------------------------------------------- */

/* Each block moves a tile from one map to another, in which the axes lie in another order. */
KERNEL(32, 1) seed_move(const GRID_CONSTANT struct seed_move_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.bytes);
	int32_t load_at[5] = { 0, 0, 0, 0, 0 }, store_at[5] = { 0, 0, 0, 0, 0 };
	uint32_t number = blockIdx.x;

	if (threadIdx.x != 0)
		return;
	for (uint32_t a = 0; a < args.axes; a++) {
		const seed_move_axis &axis = args.axis[a];
		int32_t i = (int32_t)(number % axis.tiles);

		number /= axis.tiles;
		load_at[axis.load_dim] += i * axis.load_step;
		store_at[axis.store_dim] += i * axis.store_step;
	}
	barrier_init(b, 1);
	barrier_init_fence();
	barrier_arrive_expect(b, args.bytes);
	load_tile(tile, &args.load, args.load_rank, load_at, b);
	barrier_wait(b, 0);
	store_tile(&args.store, args.store_rank, store_at, tile);
	store_commit();
	store_wait<0>();
}
