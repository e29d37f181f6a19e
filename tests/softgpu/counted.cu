/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that each execute one kind of instruction, in a pattern that the test chooses. */
#include "counted.h"

#include "tests/seeds/cluster.cuh"

namespace
{

constexpr uint32_t kBarrierAt = COUNTED_SHARED - 8;

template <typename T> DEVICE void access_as(const counted_args &args, unsigned char *shared)
{
	const uint64_t offset = (uint64_t)threadIdx.x * args.stride;
	T *const global = (T *)(args.base + offset);

	switch (args.what) {
	case COUNTED_GLOBAL_READ:
		global_read(global);
		break;
	case COUNTED_GLOBAL_WRITE:
		global_write(global, T());
		break;
	case COUNTED_SHARED_READ:
		tile_read_around<T>(shared + offset, false);
		break;
	default:
		tile_write<T>(shared + offset, T());
		break;
	}
}

DEVICE void access(const counted_args &args, unsigned char *shared)
{
	switch (args.size) {
	case 1:
		access_as<uint8_t>(args, shared);
		break;
	case 2:
		access_as<uint16_t>(args, shared);
		break;
	case 4:
		access_as<uint32_t>(args, shared);
		break;
	case 8:
		access_as<uint2>(args, shared);
		break;
	default:
		access_as<uint4>(args, shared);
		break;
	}
}

/* Returns the 16 bytes that the lane accesses in iteration n. */
DEVICE uint4 *place(const counted_args &args, uint32_t n)
{
	return (uint4 *)args.base + n * blockDim.x + threadIdx.x;
}

DEVICE void loop(const counted_args &args)
{
	const uint32_t own = threadIdx.x % COUNTED_LOOP;

	if (args.what == COUNTED_SKIPS) {
		for (uint32_t n = 0; n < COUNTED_LOOP; n++) {
			if (n == own)
				continue;
			global_write(place(args, n), uint4());
		}
	} else {
		for (uint32_t n = 0; n < own; n++)
			global_write(place(args, n), uint4());
		for (uint32_t n = 0; n < COUNTED_LOOP; n++)
			global_read(place(args, n));
	}
}

DEVICE void put(const counted_args &args, uint32_t n)
{
	global_write(place(args, n), uint4());
}

DEVICE void meet()
{
	__syncthreads();
	__syncwarp();
	cluster_sync();
	from_lane(0, 0);
}

DEVICE void move_tile(const counted_args &args, unsigned char *shared, barrier *b)
{
	const int32_t c[2] = { 0, args.row };

	barrier_arrive_expect(b, args.tile_bytes);
	load_tile(shared, &args.map, 2, c, b);
	barrier_wait(b, 0);
	store_tile(&args.map, 2, c, shared);
	store_commit();
	store_wait_read<0>();
}

DEVICE void move_bulk(const counted_args &args, unsigned char *shared, barrier *b)
{
	const void *from = (const void *)args.base;

	barrier_arrive_expect(b, 2 * args.stride);
	load_bulk(shared, from, args.stride, b);
	load_bulk(shared + args.stride, from, args.stride, b);
	barrier_wait(b, 0);
	barrier_arrive_expect(b, args.stride);
	load_bulk(shared + 2 * args.stride, from, args.stride, b);
	barrier_wait(b, 1);
	store_bulk((void *)args.base, shared, args.stride);
	store_commit();
	store_wait_read<0>();
}

DEVICE void use_unit(const counted_args &args, unsigned char *shared)
{
	barrier *b = (barrier *)(shared + kBarrierAt);

	if (threadIdx.x > 0)
		return;
	barrier_init(b, 1);
	barrier_init_fence();
	if (args.what == COUNTED_TILE)
		move_tile(args, shared, b);
	else
		move_bulk(args, shared, b);
	barrier_inval(b);
}

DEVICE void store(const counted_args &args, unsigned char *shared)
{
	const uint32_t own = COUNTED_WORDS / blockDim.x;
	const uint32_t *const in = (const uint32_t *)args.base;
	uint32_t *const out = (uint32_t *)args.base + COUNTED_WORDS;

	for (uint32_t i = threadIdx.x; i < COUNTED_WORDS; i += blockDim.x)
		tile_write(shared + i * 4, global_read(in + i));
	__syncthreads();
	for (uint32_t k = 0; k < own; k++) {
		const uint32_t i = args.what == COUNTED_UNCOALESCED_STORE ? threadIdx.x * own + k
		                                                          : k * blockDim.x + threadIdx.x;

		global_write(out + i, tile_read<uint32_t>(shared + i * 4));
	}
}

} // namespace

KERNEL(1024, 1) counted(const GRID_CONSTANT struct counted_args args)
{
	DYNAMIC_SHARED(shared);

	switch (args.what) {
	case COUNTED_SKIPS:
	case COUNTED_TRIPS:
		loop(args);
		break;
	case COUNTED_BRANCHES:
		if (threadIdx.x % 2)
			put(args, 0);
		else
			global_write(place(args, 0), uint4());
		break;
	case COUNTED_CALLS:
		put(args, 0);
		put(args, 1);
		break;
	case COUNTED_ADDS:
		global_add((uint64_t *)args.base, 1);
		break;
	case COUNTED_MEETINGS:
		meet();
		break;
	case COUNTED_TILE:
	case COUNTED_BULK:
		use_unit(args, shared);
		break;
	case COUNTED_STORE:
	case COUNTED_UNCOALESCED_STORE:
		store(args, shared);
		break;
	default:
		access(args, shared);
		break;
	}
}

/* Launched as one cluster. */
KERNEL(32, 1) counted_cluster(const GRID_CONSTANT struct counted_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *b = (barrier *)(shared + kBarrierAt);
	const bool copies = args.what == COUNTED_COPIES;
	const uint32_t blocks = gridDim.x, at = cluster_rank() * args.stride;

	if (threadIdx.x == 0) {
		barrier_init(b, 1);
		barrier_init_fence();
		barrier_arrive_expect(b, copies ? args.stride : blocks * args.stride);
	}
	cluster_sync();
	if (threadIdx.x == 0 && !copies)
		load_bulk_multicast(shared + at, (const void *)(args.base + at), args.stride, b,
		                    (1 << blocks) - 1);
	if (threadIdx.x == 0 && copies && cluster_rank() == 0) {
		load_bulk(shared, (const void *)args.base, args.stride, b);
		barrier_wait(b, 0);
		for (uint32_t other = 1; other < blocks; other++)
			copy_bulk(shared, shared, args.stride, b, other);
	}
	barrier_wait(b, 0);
	cluster_sync();
}
