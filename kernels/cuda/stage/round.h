/* SPDX-License-Identifier: Apache-2.0 */
/* A round of a job (staging.h) on the device brings the source in, moves it, and takes the destination out. A
 * job may be a single round. A job of several moves, or with a conversion, is not staged: it is launched at
 * once, and what it needs is laid out in an upload buffer first. */
#ifndef KERNELS_CUDA_STAGE_ROUND_H
#define KERNELS_CUDA_STAGE_ROUND_H

#include <cuda.h>
#include <stdint.h>

#include "jobs.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/engine.h"
#include "staging.h"
#include "uploads.h"

/* ---- Jobs at once -------------------------------------------------------------------------------------- */

struct many {
	struct launcher *launcher;
	struct upload_buffer *upload_buffer; /* a flight's own, or borrowed for this launch */
	struct engine_job *job;
	CUstream stream;
	const struct plan *plan; /* for a single move; NULL: the move's own */
};

/* Puts the whole job on the stream: a move, a move over a list of blocks, or a batch. A move of a batch that
 * cannot be launched gets its status, and the others go on. */
int many_launch(const struct many *many, struct error *err);

/* The device has this list already: addresses of its entries, and of the sides' layers, if they are not
 * evenly spaced. */
struct many_list {
	uint64_t index;
	uint64_t dst_layers, src_layers;
	uint64_t counts; /* address of two uint64_t that entries with a -1 and those that name no block are
	                    added to; 0: every entry names a block */
};

/* Puts the move over such a list on the stream, and sets the family of blocks. The move does not convert. dst
 * and src are the device's addresses of elements [0, ..., 0] of block 0 of layer 0. */
int many_launch_listed(struct launcher *launcher, CUstream stream, const struct engine_move *move,
                       struct engine_blocks *blocks, const struct many_list *list, uint64_t dst, uint64_t src,
                       struct error *err);

/* Completes a job that has ended without an error: the counts of entries, if the device has read the list,
 * and the status of a batch. */
int many_land(struct upload_buffer *upload_buffer, struct engine_job *job);

/* ---- Rounds -------------------------------------------------------------------------------------------- */

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
