/* SPDX-License-Identifier: Apache-2.0 */
/* The examples that the unit is taught with, as kernels on tma.cuh's list. Each block has its tile at the
 * start of its shared memory and its barrier behind it.
 */
#include "args.h"

#include "cluster.cuh"

namespace
{

constexpr uint32_t kThreads = 128;

/* The tile's bytes, as they lie in shared memory, to global memory; by all threads. */
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

/* All threads arrive; one of them says how many bytes come, and then has them come. */
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

/* A load in 1 to 5 dimensions. */
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

/* A store in 1 to 5 dimensions: by groups, not by a barrier. */
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

/* The tile at c, then the one behind it in dimension 0, with one place for both barriers: the first is
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

/* The same with one barrier: its second phase has the other parity. */
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

/* Contiguous bytes in and out without a map; in between, one is added to each number. */
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

/* 4 x 4 floats a block: loaded, each added its place in the tile, stored. */
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

/* 128 rows of 64 halves: one thread loads and waits, the others wait for it. */
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

/* The first block of the cluster loads for all: each has a barrier of its own for the bytes that it gets. */
KERNEL(kThreads, 1) seed_multicast(const GRID_CONSTANT struct seed_tile_args args)
{
	DYNAMIC_SHARED(tile);
	barrier *b = (barrier *)(tile + args.span);
	const int32_t c[2] = { args.c[0], args.c[1] };

	make_barrier(b, 1);
	if (threadIdx.x == 0)
		barrier_arrive_expect(b, args.bytes);
	cluster_sync();
	if (cluster_rank() == 0 && threadIdx.x == 0)
		load_tile_multicast(tile, &args.map, 2, c, b, (uint16_t)((1u << gridDim.x) - 1));
	barrier_wait(b, 0);
	dump(tile, args.span, args.bytes_at + (uint64_t)blockIdx.x * args.span);
	cluster_sync();
}
