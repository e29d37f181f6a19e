/* SPDX-License-Identifier: Apache-2.0 */
/* A warp copies a row's aligned chunks. It reads the two aligned source chunks around each one and shifts
 * them into place. */
#ifndef KERNELS_CUDA_DEVICE_ROW_COPY_CUH
#define KERNELS_CUDA_DEVICE_ROW_COPY_CUH

#include "strided.cuh"

namespace
{

/* Returns the 16 bytes that begin W words and `bits` bits into the 32 bytes of a and b. */
template <int W> DEVICE uint4 shift_pair(const uint4 &a, const uint4 &b, uint32_t bits)
{
	const uint32_t w[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };

	return make_uint4(shift_words(w[W], w[W + 1], bits), shift_words(w[W + 1], w[W + 2], bits),
	                  shift_words(w[W + 2], w[W + 3], bits), shift_words(w[W + 3], w[W + 4], bits));
}

/* A warp's part of a row: the chunks that lie wholly in the window, and the elements before and after
 * them. */
struct row_part {
	uint64_t to; /* address of the first chunk */
	/* The first chunk is read from this address plus `phase`. The chunks after it are read from 16 bytes
	 * further on each time, or 16 bytes back. */
	uint64_t from;
	uint32_t phase;
	uint32_t chunks;
	int64_t first; /* elements [first, chunks_first) and [chunks_last, last) are not in chunks */
	int64_t chunks_first;
	int64_t chunks_last;
	int64_t last;
};

/* Copies chunk U of a lane's batch and those after it. All of them are read before any is written. Unless it
 * is FULL, the batch may end earlier: only chunks whose distance from the lane's first one is below `left`
 * exist. `bits` is the part of the phase that is not whole words. `a` and `b` are defined wherever they are
 * used: registers that only some paths define would be held from the kernel's start, once for each caller. */
template <int E, int W, int STEP, bool FULL, int U = 0>
DEVICE void copy_batch(const uint4 *from, uint4 *to, int left, uint32_t bits)
{
	uint4 a, b;

	if (!FULL && U * 32 >= left)
		return;
	a = global_read(from + U * 32 * STEP);
	if (W >= 0)
		b = global_read(from + U * 32 * STEP + 1);
	if constexpr (U + 1 < ROW_BATCH)
		copy_batch<E, W, STEP, FULL, U + 1>(from, to, left, bits);
	if constexpr (W >= 0)
		a = shift_pair<W>(a, b, bits);
	global_write(to + U * 32, STEP < 0 ? reverse_elements<E>(a) : a);
}

/* Copies a lane's chunks. W is the number of words in the phase, or -1 if the phase is 0. STEP is 1 or -1:
 * the number of chunks from one to the next in the source. */
template <int E, int W, int STEP> DEVICE void copy_chunks(const row_part &part)
{
	const int lane = threadIdx.x % 32;
	const uint4 *from = (const uint4 *)(part.from + (uint64_t)(lane * STEP * 16));
	uint4 *to = (uint4 *)(part.to + (uint64_t)(lane * 16));
	const uint32_t bits = part.phase % 4 * 8;
	int left = (int)part.chunks;

#pragma unroll 1
	for (; left >= 32 * ROW_BATCH; left -= 32 * ROW_BATCH) {
		copy_batch<E, W, STEP, true>(from, to, left, bits);
		from += 32 * ROW_BATCH * STEP;
		to += 32 * ROW_BATCH;
	}
	copy_batch<E, W, STEP, false>(from, to, left - lane, bits);
}

} // namespace

#endif
