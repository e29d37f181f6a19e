/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit does for the blocks of a cluster: a draw's tile for some of them, bytes for some of them,
 * bytes from one to another; each in random clusters, with random blocks that take part. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_CLUSTER_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#include "conformance_args.h"
#include "conformance_draw.h"
#include "conformance_gpu.h"

/* Clusters of 2, 4 and 8. */
#define CLUSTER_SIZES 3

struct cluster_tally {
	uint64_t done[CLUSTER_SIZES];
	uint64_t wrong[CLUSTER_SIZES];
	uint64_t lost[CLUSTER_SIZES]; /* that were the end of their context */
};

extern const char *const cluster_way_names[CONFORMANCE_CLUSTER_WAYS];

/* Memory that is there already, each as large as the device's for tiles; the image is that of
 * conformance_expect.h. */
struct cluster_memory {
	const unsigned char *image;
	unsigned char *tile;
	unsigned char *marks;
	unsigned char *got;
};

/* One of them, counted in the tally of its way. 1: it went wrong, and report says how. tile_bytes: of memory
 * for tiles; what does not fit there is left out. A map and a draw that keep every rule. */
int cluster_try(struct gpu *gpu, enum conformance_cluster_way way, struct rng *rng, const struct draw *draw,
                const CUtensorMap *map, struct cluster_memory memory, uint32_t tile_bytes,
                struct cluster_tally *tally, char *report, size_t size, struct error *err);

#endif
