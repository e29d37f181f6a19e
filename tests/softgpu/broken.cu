/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are correct except for the one mistake that their argument selects (broken.def). */
#include "broken.cuh"

namespace
{

DEVICE void start_load(const broken_args &args, unsigned char *tile, int32_t turn, barrier *b)
{
	const int32_t off = makes(args, MISTAKE_LOAD_OFF_PIECE)          ? 2
	                    : makes(args, MISTAKE_LOAD_BEFORE_OFF_PIECE) ? -1
	                                                                 : 0;
	const int32_t c[3] = { off, turn * BROKEN_TILE_Y, 0 };
	uint32_t bytes = makes(args, MISTAKE_EXPECT_TOO_LITTLE) ? BROKEN_TILE_BYTES / 2
	                 : makes(args, MISTAKE_EXPECT_TOO_MUCH) ? BROKEN_TILE_BYTES * 2
	                                                        : BROKEN_TILE_BYTES;

	if (turn > 0 && !makes(args, MISTAKE_LOAD_BEFORE_STORE_READ))
		store_wait_read<0>();
	if (makes(args, MISTAKE_EXPECT_NOTHING))
		barrier_arrive(b);
	else if (!makes(args, MISTAKE_EXPECT_TOO_LITTLE_LATER))
		barrier_arrive_expect(b, bytes);
	if (makes(args, MISTAKE_TOO_MANY_ARRIVALS))
		barrier_arrive(b);
	load_tile(tile, &args.load, makes(args, MISTAKE_WRONG_RANK) ? 3 : 2, c, b);
	if (makes(args, MISTAKE_EXPECT_TOO_LITTLE_LATER))
		barrier_arrive_expect(b, bytes / 2);
}

DEVICE void start_store(const broken_args &args, const unsigned char *tile, int32_t turn)
{
	const int32_t c[2] = { makes(args, MISTAKE_STORE_OFF_PIECE) ? 1 : 0,
		               makes(args, MISTAKE_NEGATIVE_STORE) ? -1 : turn * BROKEN_TILE_Y };

	store_tile(&args.store, 2, c, tile);
	if (!makes(args, MISTAKE_NO_COMMIT) &&
	    !(makes(args, MISTAKE_NO_COMMIT_OF_LAST) && turn == BROKEN_TILES - 1))
		store_commit();
}

DEVICE void add_one(unsigned char *tile)
{
	for (uint32_t i = threadIdx.x * 4; i < BROKEN_TILE_BYTES; i += BROKEN_THREADS * 4)
		tile_write(tile + i, tile_read<uint32_t>(tile + i) + 1);
}

} // namespace

KERNEL(BROKEN_THREADS, 1) broken_pipeline(const GRID_CONSTANT struct broken_args args)
{
	DYNAMIC_SHARED(shared);
	barrier *b = (barrier *)(shared + kBarrierAt);
	unsigned char *tile = shared + (makes(args, MISTAKE_TILE_OFF_128)       ? 64
	                                : makes(args, MISTAKE_TILE_OFF_SWIZZLE) ? 128
	                                : makes(args, MISTAKE_TILE_PAST_SHARED) ? BROKEN_SHARED
	                                                                        : 0);

	if (threadIdx.x == 0 && !makes(args, MISTAKE_NO_INIT)) {
		barrier_init(b, makes(args, MISTAKE_TOO_FEW_ARRIVALS) ? 2 : 1);
		if (!makes(args, MISTAKE_NO_INIT_FENCE))
			barrier_init_fence();
	}
	if (!makes(args, MISTAKE_NO_INIT_SYNC))
		__syncthreads();

	for (int32_t turn = 0; turn < BROKEN_TILES; turn++) {
		if (threadIdx.x == 0)
			start_load(args, tile, turn, b);
		if (makes(args, MISTAKE_WRONG_PARITY))
			barrier_wait(b, (turn & 1) ^ 1);
		else if (!makes(args, MISTAKE_NO_WAIT))
			barrier_wait(b, turn & 1);
		add_one(tile);
		if (!makes(args, MISTAKE_NO_FENCE) &&
		    !(makes(args, MISTAKE_NO_FENCE_OF_ONE) && threadIdx.x == 37))
			fence_proxy_async();
		if (!makes(args, MISTAKE_NO_SYNC_BEFORE_STORE))
			__syncthreads();
		if (threadIdx.x == 0)
			start_store(args, tile, turn);
	}
	if (!makes(args, MISTAKE_EXIT_BEFORE_STORE_READ))
		store_wait_read<0>();
}

/* ---- One wrong thing ------------------------------------------------------------------------------- */

namespace
{

DEVICE void misuse_barrier(const broken_args &args, unsigned char *shared)
{
	barrier *b = (barrier *)(shared + kBarrierAt + (makes(args, MISTAKE_BARRIER_OFF_8) ? 4 : 0));
	uint32_t bytes = 64;

	barrier_init(b, makes(args, MISTAKE_INIT_FOR_NOBODY) ? 0 : 1);
	if (makes(args, MISTAKE_INIT_TWICE))
		barrier_init(b, 1);
	barrier_init_fence();
	if (makes(args, MISTAKE_BARRIER_AFTER_INVAL))
		barrier_inval(b);
	if (makes(args, MISTAKE_BARRIER_WRITTEN_OVER))
		b->word = 1;
	if (makes(args, MISTAKE_TILE_OVER_BARRIER))
		tile_write<uint32_t>(b, 1);
	barrier_arrive_expect(b, bytes);
	load_bulk(shared, (const void *)args.in, bytes, b);
	if (makes(args, MISTAKE_INVAL_WHILE_LOADING))
		barrier_inval(b);
	if (!makes(args, MISTAKE_EXIT_WHILE_LOADING))
		barrier_wait(b, 0);
}

DEVICE void misuse_load(const broken_args &args, unsigned char *shared)
{
	barrier *b = (barrier *)(shared + kBarrierAt);
	const void *from = (const void *)(makes(args, MISTAKE_LOAD_OUTSIDE)       ? args.outside
	                                  : makes(args, MISTAKE_BULK_FROM_OFF_16) ? args.in + 4
	                                                                          : args.in);
	uint32_t bytes = makes(args, MISTAKE_BULK_OF_24_BYTES) ? 24 : 64;
	const int32_t c[2] = { 0, 0 };

	barrier_init(b, 1);
	barrier_init_fence();
	if (makes(args, MISTAKE_MULTICAST_TO_NOBODY)) {
		barrier_arrive_expect(b, BROKEN_TILE_BYTES);
		load_tile_multicast(shared, &args.load, 2, c, b, 2);
	}
	if (makes(args, MISTAKE_TWO_LOADS_IN_ONE_PLACE)) {
		barrier_arrive_expect(b, 128);
		load_bulk(shared, from, 64, b);
		load_bulk(shared + 48, from, 64, b);
	} else {
		barrier_arrive_expect(b, bytes);
		load_bulk(shared + (makes(args, MISTAKE_BULK_TO_OFF_16) ? 8 : 0), from, bytes, b);
	}
	barrier_wait(b, 0);
}

/* All threads of the block call it: each writes a word and reads its neighbour's. */
DEVICE void misuse_tile(const broken_args &args, unsigned char *shared)
{
	uint32_t t = threadIdx.x, next = (t + 1) % BROKEN_THREADS;

	tile_write<uint32_t>(shared + t * 4, t);
	if (!makes(args, MISTAKE_READ_NO_SYNC))
		__syncthreads();
	uint32_t value = tile_read<uint32_t>(shared + next * 4);

	if (!makes(args, MISTAKE_WRITE_NO_SYNC))
		__syncthreads();
	tile_write<uint32_t>(shared + t * 4, value);
	if (makes(args, MISTAKE_READ_PAST_SHARED))
		tile_read<uint32_t>(shared + BROKEN_SHARED);
	if (makes(args, MISTAKE_READ_OFF_4))
		tile_read<uint32_t>(shared + 2);

	fence_proxy_async();
	__syncthreads();
	if (t == 0) {
		store_bulk((void *)args.in, shared, BROKEN_THREADS * 4);
		store_commit();
		if (!makes(args, MISTAKE_WRITE_BEFORE_STORE_READ))
			store_wait_read<0>();
		tile_write<uint32_t>(shared, 0);
		store_wait_read<0>();
	}
}

/* All threads of the block call it: all add to one word. */
DEVICE void misuse_max(const broken_args &args, unsigned char *shared)
{
	if (threadIdx.x == 0)
		tile_write<uint32_t>(shared, 0);
	if (!makes(args, MISTAKE_MAX_NO_SYNC))
		__syncthreads();
	tile_max(shared, threadIdx.x);
	if (!makes(args, MISTAKE_READ_MAX_NO_SYNC))
		__syncthreads();
	tile_read<uint32_t>(shared);
}

/* All threads of the block call it: one loads again what the others are reading. */
DEVICE void misuse_stage(const broken_args &args, unsigned char *shared)
{
	barrier *b = (barrier *)(shared + kBarrierAt);

	if (threadIdx.x == 0) {
		barrier_init(b, 1);
		barrier_init_fence();
	}
	__syncthreads();
	for (uint32_t turn = 0; turn < 2; turn++) {
		if (threadIdx.x == 0) {
			barrier_arrive_expect(b, BROKEN_THREADS * 4);
			load_bulk(shared, (const void *)args.in, BROKEN_THREADS * 4, b);
		}
		barrier_wait(b, turn);
		tile_read<uint32_t>(shared + threadIdx.x * 4);
		if (!makes(args, MISTAKE_REFILL_BEFORE_READ))
			__syncthreads();
	}
}

/* All threads of the block call it: the lanes of a warp read each other's words. */
DEVICE void misuse_warp(const broken_args &args, unsigned char *shared)
{
	uint32_t t = threadIdx.x, lane = t % 32, next = t - lane + (lane + 1) % 32;

	tile_write<uint32_t>(shared + t * 4, t);
	if (makes(args, MISTAKE_WARP_OTHER_LANES))
		__syncwarp(lane < 16 ? 0xffff0000 : 0xffff);
	else if (!makes(args, MISTAKE_WARP_NO_SYNC) && !(makes(args, MISTAKE_WARP_SYNC_OF_SOME) && lane == 5))
		__syncwarp();
	if (makes(args, MISTAKE_WARP_SYNC_OF_SOME))
		__syncthreads();
	tile_read<uint32_t>(shared + next * 4);
}

/* All threads of the block call it: lanes that have synchronized then wait for a load separately. */
DEVICE void misuse_news(const broken_args &args, unsigned char *shared)
{
	barrier *b = (barrier *)(shared + kBarrierAt + 64);
	const uint32_t t = threadIdx.x;

	if (t == 0) {
		barrier_init(b, 1);
		barrier_init_fence();
	}
	__syncthreads();
	if (t == 0) {
		barrier_arrive_expect(b, 64);
		load_bulk(shared + kBarrierAt + 128, (const void *)args.in, 64, b);
	}
	__syncwarp();
	if (t == 0 || !makes(args, MISTAKE_WAIT_OF_ANOTHER_LANE))
		barrier_wait(b, 0);
	if (t < 2)
		tile_read<uint32_t>(shared + kBarrierAt + 128 + t * 4);
	__syncthreads();
	if (t == 0)
		barrier_inval(b);
}

DEVICE void misuse_global(const broken_args &args)
{
	uint64_t at = makes(args, MISTAKE_GLOBAL_READ_OUTSIDE) ? args.outside : args.in;

	global_read((const uint32_t *)at);
	global_write((uint32_t *)(args.in + (makes(args, MISTAKE_GLOBAL_WRITE_OFF_4) ? 2 : 0)), 0u);
}

} // namespace

KERNEL(BROKEN_THREADS, 1) broken_once(const GRID_CONSTANT struct broken_args args)
{
	DYNAMIC_SHARED(shared);

	misuse_warp(args, shared);
	__syncthreads();
	misuse_news(args, shared);
	__syncthreads();
	misuse_tile(args, shared);
	fence_proxy_async();
	__syncthreads();
	misuse_max(args, shared);
	fence_proxy_async();
	__syncthreads();
	misuse_stage(args, shared);
	__syncthreads();
	if (threadIdx.x == 0)
		barrier_inval((barrier *)(shared + kBarrierAt));
	__syncthreads();
	if (threadIdx.x == 0) {
		misuse_load(args, shared);
		barrier_inval((barrier *)(shared + kBarrierAt));
		misuse_barrier(args, shared);
		misuse_global(args);
	}
	__syncthreads();
	if (makes(args, MISTAKE_SYNC_OF_SOME) && threadIdx.x < BROKEN_THREADS / 2)
		barrier_wait((barrier *)(shared + kBarrierAt), 1);
	__syncthreads();
}

/* ---- Two blocks of a cluster ------------------------------------------------------------------------- */

namespace
{

constexpr uint32_t kCopyBytes = BROKEN_THREADS * 4;
constexpr uint32_t kCopyTo = 1024;
constexpr int32_t kCopies = 2;

struct cluster_barriers {
	barrier *arrival; /* completes when the first block's bytes have come */
	barrier *release; /* in the first block; completes when the second block has read them */
};

DEVICE void start_copy(const broken_args &args, unsigned char *shared, barrier *arrival)
{
	unsigned char *to = shared + (makes(args, MISTAKE_COPY_TO_OFF_16)        ? kCopyTo + 8
	                              : makes(args, MISTAKE_COPY_PAST_SHARED)    ? BROKEN_SHARED
	                              : makes(args, MISTAKE_COPY_OVER_A_BARRIER) ? kBarrierAt
	                                                                         : kCopyTo);

	copy_bulk(to, shared + (makes(args, MISTAKE_COPY_FROM_OFF_16) ? 4 : 0),
	          makes(args, MISTAKE_COPY_OF_24_BYTES) ? 24 : kCopyBytes, arrival,
	          makes(args, MISTAKE_COPY_TO_NO_BLOCK) ? 2 : 1);
}

/* Run by the first block: writes and copies, and does so again once the second block has read. */
DEVICE void send(const broken_args &args, unsigned char *shared, cluster_barriers barriers)
{
	for (int32_t turn = 0; turn < kCopies; turn++) {
		if (turn > 0 && !makes(args, MISTAKE_COPY_BEFORE_RELEASE)) {
			if (makes(args, MISTAKE_WAIT_OF_THE_BLOCK_ONLY))
				barrier_wait(barriers.release, 0);
			else
				barrier_wait_cluster(barriers.release, 0);
		}
		if (turn == 0 || !makes(args, MISTAKE_COPY_BEFORE_RELEASE))
			tile_write<uint32_t>(shared + threadIdx.x * 4, turn);
		if (!makes(args, MISTAKE_COPY_NO_FENCE))
			fence_proxy_async();
		__syncthreads();
		if (threadIdx.x == 0)
			start_copy(args, shared, barriers.arrival);
		if (makes(args, MISTAKE_WRITE_BEFORE_COPY_READ) && threadIdx.x == 0)
			tile_write<uint32_t>(shared, 0);
	}
}

/* Run by the second block: expects the bytes, reads them and tells the first block. */
DEVICE void receive(const broken_args &args, unsigned char *shared, cluster_barriers barriers)
{
	uint32_t bytes = makes(args, MISTAKE_COPY_EXPECTS_TOO_LITTLE) ? kCopyBytes / 2
	                 : makes(args, MISTAKE_COPY_EXPECTS_TOO_MUCH) ? kCopyBytes * 2
	                                                              : kCopyBytes;

	for (int32_t turn = 0; turn < kCopies; turn++) {
		if (threadIdx.x == 0)
			barrier_arrive_expect(barriers.arrival, bytes);
		if (!makes(args, MISTAKE_COPY_NO_WAIT))
			barrier_wait(barriers.arrival, turn);
		tile_read<uint32_t>(shared + kCopyTo + threadIdx.x * 4);
		if (!makes(args, MISTAKE_RELEASE_BEFORE_READ))
			__syncthreads();
		if (threadIdx.x == 0 && turn + 1 < kCopies)
			barrier_arrive_block(barriers.release,
			                     makes(args, MISTAKE_ARRIVE_ON_NO_BLOCK) ? 2 : 0);
	}
}

/* Run by the second block: loads for both blocks. */
DEVICE void share(const broken_args &args, unsigned char *shared, barrier *arrival)
{
	uint32_t parity = cluster_rank() == 0 ? 0 : kCopies & 1;

	if (makes(args, MISTAKE_MULTICAST_OVER_NO_FENCE) && cluster_rank() == 0)
		tile_write<uint32_t>(shared + kCopyTo + threadIdx.x * 4, 0);
	cluster_sync();
	if (threadIdx.x == 0)
		barrier_arrive_expect(arrival, kCopyBytes);
	if (cluster_rank() == 1 && threadIdx.x == 0)
		load_bulk_multicast(shared + kCopyTo, (const void *)args.in, kCopyBytes, arrival,
		                    makes(args, MISTAKE_MULTICAST_TO_NONE)          ? 0
		                    : makes(args, MISTAKE_MULTICAST_BULK_TO_NOBODY) ? 7
		                                                                    : 3);
	barrier_wait(arrival, parity);
	tile_read<uint32_t>(shared + kCopyTo + threadIdx.x * 4);
}

} // namespace

KERNEL(BROKEN_THREADS, 1) broken_cluster(const GRID_CONSTANT struct broken_args args)
{
	DYNAMIC_SHARED(shared);
	cluster_barriers barriers = { (barrier *)(shared + kBarrierAt),
		                      (barrier *)(shared + kBarrierAt) + 1 };
	bool is_first = cluster_rank() == 0;

	if (threadIdx.x == 0) {
		barrier_init(barriers.arrival, 1);
		barrier_init(barriers.release, 1);
		if (!makes(args, MISTAKE_NO_INIT_FENCE_OF_PEER) || is_first)
			barrier_init_fence();
	}
	if (makes(args, MISTAKE_PEER_NOT_STARTED))
		__syncthreads();
	else
		cluster_sync();
	if (makes(args, MISTAKE_EXIT_BEFORE_ARRIVAL)) {
		if (!is_first && threadIdx.x == 0)
			barrier_arrive_block(barriers.release, 0);
		return;
	}
	if (is_first)
		send(args, shared, barriers);
	else
		receive(args, shared, barriers);
	if (makes(args, MISTAKE_EXIT_BEFORE_COPY_READ))
		return;
	share(args, shared, barriers.arrival);
	cluster_sync();
}
