/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit does for the blocks of a cluster: it loads a draw's tile or bytes into some of them, or
 * copies bytes from one to another, in random clusters with random blocks taking part. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_CLUSTER_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#include "conformance_args.h"
#include "conformance_draw.h"
#include "conformance_gpu.h"

/* The sizes are 2, 4 and 8. */
#define CLUSTER_SIZES 3

struct cluster_tally {
	uint64_t done[CLUSTER_SIZES];
	uint64_t wrong[CLUSTER_SIZES];
	uint64_t lost[CLUSTER_SIZES]; /* cases that ended their context */
};

extern const char *const cluster_way_names[CONFORMANCE_CLUSTER_WAYS];

/* Buffers that exist already, each as large as the device's for tiles. The image is that of
 * conformance_expect.h. */
struct cluster_memory {
	const unsigned char *image;
	unsigned char *tile;
	unsigned char *marks;
	unsigned char *got;
};

/* Runs one case and counts it in the tally of its way. Returns 1 if the result is wrong, which report
 * describes. tile_bytes is the memory for tiles; a case that does not fit is skipped. The map and the draw
 * must keep every rule. */
int cluster_try(struct gpu *gpu, enum conformance_cluster_way way, struct rng *rng, const struct draw *draw,
                const CUtensorMap *map, struct cluster_memory memory, uint32_t tile_bytes,
                struct cluster_tally *tally, char *report, size_t size, struct error *err);

#endif
