/* SPDX-License-Identifier: Apache-2.0 */
/* One tile loaded or stored by the unit, everything else by plain threads: what the conformance run compares
 * with the software model. */
#include "conformance_args.h"

#include "kernels/cuda/device/tma.cuh"

#define TRIES (1 << 17) /* of a barrier whose bytes do not come: a load takes far less */

DEVICE uint32_t first_word()
{
	return threadIdx.x * sizeof(uint32_t);
}

#define STEP (CONFORMANCE_THREADS * sizeof(uint32_t))

/* Shared memory is poisoned, the tile loaded, and all of it copied out. A tile that has not arrived is copied
 * too: where the poison is gone, the unit has written. */
KERNEL(CONFORMANCE_THREADS, 1) conformance_load(const GRID_CONSTANT struct conformance_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *arrival = (barrier *)(shared + args.copied);
	uint32_t *out = (uint32_t *)args.bytes;
	bool arrived = false;

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
	for (int i = 0; i < TRIES && !arrived; i++)
		arrived = barrier_test(arrival, 0);

	for (uint32_t i = first_word(); i < args.copied; i += STEP)
		global_write(out + i / sizeof(uint32_t), tile_read<uint32_t>(shared + i));
	if (threadIdx.x == 0)
		global_write((uint32_t *)args.status,
		             (uint32_t)(arrived ? CONFORMANCE_ARRIVED : CONFORMANCE_LATE));
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
