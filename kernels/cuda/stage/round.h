/* SPDX-License-Identifier: Apache-2.0 */
/* A round of a job (staging.h) on the device brings the source in, moves it, and takes the destination out. A
 * job may be a single round. */
#ifndef KERNELS_CUDA_STAGE_ROUND_H
#define KERNELS_CUDA_STAGE_ROUND_H

#include <cuda.h>
#include <stdint.h>

#include "equipment.h"
#include "job.h"
#include "staging.h"
#include "upload_buffer.h"

struct round {
	struct equipment *equipment;
	struct engine_job *job;
	const struct staging *staging;
	struct upload_buffer *upload_buffer;
	struct tensor_extent *brought; /* what the rounds so far have brought of a source that is brought as a
	                                  whole */
	uint64_t scratch;              /* its address */
	uint64_t i;                    /* the number of the round */
	CUstream in, own, out;         /* the streams on which it brings, moves and takes, maybe the same */

	/* round_init and round_carry set these. */
	struct staging_round part;
	CUstream last; /* the last stream that the round has used, which waits for all of it; or NULL */
	uint64_t dst;  /* addresses of the job's elements [0, ..., 0] */
	uint64_t src;
};

/* Completes a round whose first fields have been set, and whose others are zeros. */
void round_init(struct round *round);

/* Puts all of the round on its streams. On failure some of it may be there, if round->last is set. */
int round_carry(struct round *round, struct error *err);

/* Has what follows on the stream wait for all of the round so far. */
int round_pass(struct round *round, CUstream to, struct error *err);

#endif
