/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the runs of a tile in the source, and copies them. */
#include "tile_pack.h"

#include <string.h>

#include "kernels/cpu/isa/short.h"
#include "proto/arithmetic.h"

/* Runs that are fetched before the one that is copied; 2 to 16 within noise of each other, none 0.9 of them.
 */
#define RUNS_AHEAD 4

/* Gaps of up to so many bytes, and no longer than the run before them, are packed too: their lines are read
 * anyway. Not where runs are the image's, too: without gaps more of them are one. */
#define GAP_MOST 32

/* The dimension not taken with the smallest stride in the source; -1: none. */
static int find_closest(const struct tile_dim *dim, int n, uint64_t taken)
{
	int ret = -1;
	for (int d = 0; d < n; d++)
		if (!(taken >> d & 1) && (ret < 0 || magnitude_i64(dim[d].src) < magnitude_i64(dim[ret].src)))
			ret = d;
	return ret;
}

static bool add_runs(struct tile_pack *pack, struct tile_dim *dim)
{
	int64_t stride = magnitude_i64(dim->src);
	if (pack->n * dim->n > TILE_PACK_RUNS)
		return false;
	for (int64_t i = 1; i < dim->n; i++)
		for (int64_t j = 0; j < pack->n; j++)
			pack->offset[i * pack->n + j] = pack->offset[j] + i * stride;
	dim->packed = pack->n * pack->pitch * (dim->src < 0 ? -1 : 1);
	pack->n *= dim->n;
	return true;
}

bool tile_pack_init(struct tile_pack *ret, int64_t element, struct tile_dim *dim, int n)
{
	uint64_t taken = 0, repeated;
	int64_t gap_most = GAP_MOST;
	int d;
	ret->n = 1;
	ret->bytes = element;
	ret->offset[0] = ret->low = ret->first = 0;
	for (d = 0; d < n; d++)
		if (dim[d].src == 0) {
			dim[d].packed = 0;
			taken |= UINT64_C(1) << d;
		}
	repeated = taken;
	while ((d = find_closest(dim, n, taken)) >= 0) {
		int64_t gap = magnitude_i64(dim[d].src) - ret->bytes;
		if (taken == repeated)
			gap_most = dim[d].image == element ? 0 : GAP_MOST;
		if (gap > min_i64(ret->bytes, gap_most))
			break;
		dim[d].packed = dim[d].src;
		ret->bytes += (dim[d].n - 1) * magnitude_i64(dim[d].src);
		taken |= UINT64_C(1) << d;
	}
	/* A line between one run and the next: so the same place in each falls into another set of the
	 * cache. Short ones lie without gaps, as one run. */
	ret->pitch = ret->bytes;
	if (ret->bytes >= CPU_LINE)
		ret->pitch = divide_up_i64(ret->bytes, CPU_LINE) * CPU_LINE + CPU_LINE;
	for (; (d = find_closest(dim, n, taken)) >= 0; taken |= UINT64_C(1) << d)
		if (!add_runs(ret, &dim[d]))
			return false;
	for (d = 0; d < n; d++) {
		if (dim[d].src < 0) {
			ret->low += (dim[d].n - 1) * dim[d].src;
			ret->first -= (dim[d].n - 1) * dim[d].packed;
		}
	}
	return true;
}

int64_t tile_pack_size(const struct tile_pack *pack)
{
	return pack->n * pack->pitch + CPU_LINE;
}

void tile_pack_run(const struct tile_pack *pack, char *packed, const char *src)
{
	int64_t n = pack->n, bytes = pack->bytes;
	src += pack->low;
	for (int64_t i = 0; i < n; i++, packed += pack->pitch) {
		if (bytes <= CPU_LINE) {
			copy_short(packed, src + pack->offset[i], (uint32_t)bytes);
			continue;
		}
		for (int64_t at = 0; i + RUNS_AHEAD < n && at < bytes; at += CPU_LINE)
			__builtin_prefetch(src + pack->offset[i + RUNS_AHEAD] + at, 0, 2);
		memcpy(packed, src + pack->offset[i], (size_t)bytes);
	}
}
