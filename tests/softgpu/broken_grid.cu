/* SPDX-License-Identifier: Apache-2.0 */
/* A grid that may start before the previous grid of the stream has ended. Each of the first threads accesses
 * global memory in a different way; only the thread whose way is the selected mistake does not wait for the
 * previous grid first. */
#include "broken.cuh"

namespace
{

constexpr uint32_t kBulkAt = kBarrierAt + 256;
constexpr uint32_t kBulkBytes = 64;
constexpr uint32_t kStoreAt = 3072;

DEVICE barrier *expect(unsigned char *shared, uint32_t number, uint32_t bytes)
{
	barrier *b = (barrier *)(shared + kBarrierAt) + number;

	barrier_init(b, 1);
	barrier_init_fence();
	barrier_arrive_expect(b, bytes);
	return b;
}

DEVICE void load(const broken_args &args, uint32_t own, unsigned char *shared)
{
	const bool is_bulk = own == MISTAKE_EARLY_LOAD_BULK || own == MISTAKE_EARLY_LOAD_BULK_MULTICAST;
	const bool is_multicast =
	    own == MISTAKE_EARLY_LOAD_BULK_MULTICAST || own == MISTAKE_EARLY_LOAD_TILE_MULTICAST;
	const uint32_t bytes = is_bulk ? kBulkBytes : BROKEN_TILE_BYTES;
	unsigned char *const to = shared + (is_bulk ? kBulkAt : 0) + is_multicast * bytes;
	barrier *const b = expect(shared, threadIdx.x, bytes);
	const int32_t c[2] = { 0, 0 };

	if (is_bulk && is_multicast)
		load_bulk_multicast(to, (const void *)args.in, bytes, b, 1);
	else if (is_bulk)
		load_bulk(to, (const void *)args.in, bytes, b);
	else if (is_multicast)
		load_tile_multicast(to, &args.load, 2, c, b, 1);
	else
		load_tile(to, &args.load, 2, c, b);
	barrier_wait(b, 0);
}

DEVICE void touch(const broken_args &args, uint32_t own, unsigned char *shared)
{
	const int32_t c[2] = { 0, 0 };

	switch (own) {
	case MISTAKE_EARLY_READ:
		global_read((const uint32_t *)args.in);
		break;
	case MISTAKE_EARLY_WRITE:
		global_write((uint32_t *)args.in, 0u);
		break;
	case MISTAKE_EARLY_ADD:
		global_add((uint64_t *)args.in, 1);
		break;
	case MISTAKE_EARLY_LOAD_BULK:
	case MISTAKE_EARLY_LOAD_BULK_MULTICAST:
	case MISTAKE_EARLY_LOAD_TILE:
	case MISTAKE_EARLY_LOAD_TILE_MULTICAST:
		load(args, own, shared);
		break;
	case MISTAKE_EARLY_STORE_BULK:
		store_bulk((void *)args.in, shared + kStoreAt, kBulkBytes);
		store_commit();
		break;
	case MISTAKE_EARLY_STORE_TILE:
		store_tile(&args.store, 2, c, shared + kStoreAt);
		store_commit();
		break;
	}
	store_wait_read<0>();
}

} // namespace

KERNEL(BROKEN_THREADS, 1) broken_grid(const GRID_CONSTANT struct broken_args args)
{
	DYNAMIC_SHARED(shared);
	const uint32_t own = MISTAKE_EARLY_READ + threadIdx.x;

	grid_launch_dependents();
	tensor_map_prefetch(&args.load);
	if (args.mistake != own)
		grid_wait();
	__syncthreads();
	touch(args, own, shared);
}
