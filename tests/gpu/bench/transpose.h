/* SPDX-License-Identifier: Apache-2.0 */
/* A transpose of n x n float32 between memory on the device, known to a rig and to a service: one at a time
 * by a launch of this process and by the service, and a ping. What fails ends the program.
 */
#ifndef TESTS_GPU_BENCH_TRANSPOSE_H
#define TESTS_GPU_BENCH_TRANSPOSE_H

#include "client/tmaclient.h"
#include "tests/gpu/rig.h"

struct transpose {
	struct rig *rig;
	tma_client *client;
	CUdeviceptr memory[2]; /* destination, source */
	tma_region *region[2];
	struct transform transform;
	struct plan plan;
	struct tma_tensor tensor[2];

	/* From transpose_open_ring on. */
	tma_plan *prepared;
	tma_ring *ring;
	uint32_t spin_us;
};

extern const int transpose_perm[2];

/* Ends the program when a call of the client's library has failed. */
void must(tma_client *client, int r);

void transpose_init(struct transpose *transpose, struct rig *rig, tma_client *client, int64_t n);
void transpose_deinit(struct transpose *transpose);

/* The connection's ring, which the service polls for so long after a run, as does this side. */
void transpose_open_ring(struct transpose *transpose, uint32_t spin_us);

/* Puts it on the rig's stream. */
void transpose_launch(struct transpose *transpose);

/* One, to its end; arg is a transpose. */
typedef void transpose_way(void *arg);
transpose_way transpose_direct, transpose_served, transpose_by_ring, transpose_ping;

#endif
