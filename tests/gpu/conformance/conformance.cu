/* SPDX-License-Identifier: Apache-2.0 */
/* One tile loaded or stored by the TMA unit, or one transfer between the blocks of a cluster; plain threads
 * do everything else. The conformance run compares the results with the software model. */
#include "conformance_args.h"

#include "tests/seeds/cluster.cuh"

#define TRIES (1 << 17) /* tests of a barrier before its bytes count as missing; a load takes far less */

DEVICE uint32_t first_word()
{
	return threadIdx.x * sizeof(uint32_t);
}

#define STEP (CONFORMANCE_THREADS * sizeof(uint32_t))

/* Returns whether the phase of parity 0 ends within that time. */
DEVICE bool has_arrived(barrier *arrival)
{
	bool arrived = false;

	for (int i = 0; i < TRIES && !arrived; i++)
		arrived = barrier_test(arrival, 0);
	return arrived;
}

/* Copies shared memory and the barrier's status to the block's place in global memory. */
DEVICE void report(const conformance_args &args, const unsigned char *shared, uint32_t block, bool arrived)
{
	uint32_t *out = (uint32_t *)(args.bytes + (uint64_t)block * args.copied);

	for (uint32_t i = first_word(); i < args.copied; i += STEP)
		global_write(out + i / sizeof(uint32_t), tile_read<uint32_t>(shared + i));
	if (threadIdx.x == 0)
		global_write((uint32_t *)args.status + block,
		             (uint32_t)(arrived ? CONFORMANCE_ARRIVED : CONFORMANCE_LATE));
}

/* Poisons shared memory, loads the tile and copies all of it out, even if the tile has not arrived: the unit
 * has written wherever the poison is gone. */
KERNEL(CONFORMANCE_THREADS, 1) conformance_load(const GRID_CONSTANT struct conformance_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *arrival = (barrier *)(shared + args.copied);

	for (uint32_t i = first_word(); i < args.copied; i += STEP)
		tile_write<uint32_t>(shared + i, CONFORMANCE_POISON * 0x01010101u);
	fence_proxy_async();
	if (threadIdx.x == 0) {
		barrier_init(arrival, 1);
		barrier_init_fence();
	}
	__syncthreads();

	if (threadIdx.x == 0) {
		barrier_arrive_expect(arrival, args.expect);
		load_tile(shared, &args.map, args.rank, args.at, arrival);
	}
	report(args, shared, 0, has_arrived(arrival));
}

KERNEL(CONFORMANCE_THREADS, 1) conformance_store(const GRID_CONSTANT struct conformance_args args)
{
	DYNAMIC_SHARED(shared);
	const uint32_t *in = (const uint32_t *)args.bytes;

	for (uint32_t i = first_word(); i < args.copied; i += STEP)
		tile_write(shared + i, global_read(in + i / sizeof(uint32_t)));
	fence_proxy_async();
	__syncthreads();

	if (threadIdx.x == 0) {
		store_tile(&args.map, args.rank, args.at, shared);
		store_commit();
		store_wait<0>();
	}
}

/* One block of the cluster has the unit write into the shared memory of others. In a block that receives
 * nothing, the arrival alone ends the barrier's phase. */
KERNEL(CONFORMANCE_THREADS, 1) conformance_cluster(const GRID_CONSTANT struct conformance_cluster_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *arrival = (barrier *)(shared + args.tile.copied);
	const uint32_t block = cluster_rank(), mask = args.mask;
	uint32_t first = 0;

	while (!(mask >> first & 1))
		first++;

	for (uint32_t i = first_word(); i < args.tile.copied; i += STEP)
		tile_write<uint32_t>(shared + i, CONFORMANCE_PATTERN(block, i / sizeof(uint32_t)));
	fence_proxy_async();
	if (threadIdx.x == 0) {
		barrier_init(arrival, 1);
		barrier_init_fence();
	}
	cluster_sync();

	if (threadIdx.x == 0)
		barrier_arrive_expect(arrival, mask >> block & 1 ? args.tile.expect : 0);
	if (threadIdx.x == 0 && block == args.issuer) {
		if (args.way == CONFORMANCE_SHARE_TILE)
			load_tile_multicast(shared, &args.tile.map, args.tile.rank, args.tile.at, arrival,
			                    (uint16_t)mask);
		else if (args.way == CONFORMANCE_SHARE_BYTES)
			load_bulk_multicast(shared + args.to, (const void *)args.global, args.tile.expect,
			                    arrival, (uint16_t)mask);
		else
			copy_bulk(shared + args.to, shared + args.from, args.tile.expect, arrival, first);
	}
	report(args.tile, shared, block, has_arrived(arrival));
	cluster_sync();
}
