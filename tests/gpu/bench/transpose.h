/* SPDX-License-Identifier: Apache-2.0 */
/* A transpose of n x n float32 in device memory that is known to a rig and to a service: one at a time by a
 * launch of this process or by the service, and a ping. A failure ends the program. */
#ifndef TESTS_GPU_BENCH_TRANSPOSE_H
#define TESTS_GPU_BENCH_TRANSPOSE_H

#include "client/tmaclient.h"
#include "tests/gpu/rig.h"

struct transpose {
	struct rig *rig;
	tma_client *client;
	CUdeviceptr memory[2]; /* [0] destination, [1] source */
	tma_region *region[2];
	struct transform transform;
	struct plan plan;
	struct tma_tensor tensor[2];

	/* Set by transpose_open_ring. */
	tma_plan *prepared;
	tma_ring *ring;
	uint32_t spin_us;
};

extern const int transpose_perm[2];

/* Ends the program if a call of the client library has failed. */
void must(tma_client *client, int r);

void transpose_init(struct transpose *transpose, struct rig *rig, tma_client *client, int64_t n);
void transpose_deinit(struct transpose *transpose);

/* Opens the connection's ring. After a run, the service and this process poll it for spin_us. */
void transpose_open_ring(struct transpose *transpose, uint32_t spin_us);

/* Launches the transpose on the rig's stream. */
void transpose_launch(struct transpose *transpose);

/* Carries out one transpose; arg is a struct transpose. */
typedef void transpose_way(void *arg);
transpose_way transpose_direct, transpose_served, transpose_by_ring, transpose_ping;

#endif
