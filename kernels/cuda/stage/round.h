/* SPDX-License-Identifier: Apache-2.0 */
/* One round of a job on the device (staging.h): it brings its part of the source in, moves it, and takes its
 * part of the destination out. A job may be a single round.
 *
 * Jobs of several moves and jobs with a conversion are not staged. They are launched as a whole, after what
 * their kernels need has been written to an upload buffer (uploads.h).
 */
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
	struct upload_buffer *upload_buffer; /* a flight's own, or one that is borrowed for this launch */
	struct engine_job *job;
	CUstream stream;
	const struct plan *plan; /* plan of a single move; NULL: the one in the move */
};

/* Enqueues the whole job on the stream: a move, a move over a list of blocks, or a batch. If a move of a
 * batch cannot be launched, its status says so and the other moves go on. Returns 0, or an error of the job
 * as a whole. */
int many_launch(const struct many *many, struct error *err);

/* A list that is on the device already: the addresses of its entries, and of the layers' offsets on either
 * side, which are 0 where layers are evenly spaced. */
struct many_list {
	uint64_t index;
	uint64_t dst_layers, src_layers;
	uint64_t counts; /* address of two uint64_t counters: of entries that contain a -1, and of others that
	                    name no block; 0: every entry names a block */
};

/* Enqueues the move over such a list on the stream, and sets blocks->family. The move must not convert. dst
 * and src are the device addresses of element [0, ..., 0] of block 0 of layer 0. Returns 0, NO_MEMORY or the
 * driver's error. */
int many_launch_listed(struct launcher *launcher, CUstream stream, const struct engine_move *move,
                       struct engine_blocks *blocks, const struct many_list *list, uint64_t dst, uint64_t src,
                       struct error *err);

/* Completes a job that has ended without an error: sets its counts of entries that name no block, if the
 * device has read the list, and returns the first failure of a batch, or 0. */
int many_land(struct upload_buffer *upload_buffer, struct engine_job *job);

/* ---- Rounds -------------------------------------------------------------------------------------------- */

struct round {
	struct equipment *equipment;
	struct engine_job *job;
	const struct staging *staging;
	struct upload_buffer *upload_buffer;
	/* For a source that is brought as a whole: the bytes of it that the rounds so far have brought. The
	 * rounds of a job share it. */
	struct tensor_extent *brought;
	uint64_t scratch; /* device address of the job's scratch memory */
	uint64_t i;       /* number of this round */
	/* The streams of the three steps (bring in, move, take out). They may be the same stream. */
	CUstream in, own, out;

	/* round_init and round_carry set the fields from here on. */
	struct staging_round part;
	/* The stream that the round used last. Work that is put on it next comes after all of the round so
	 * far. NULL: the round has used no stream yet. */
	CUstream last;
	uint64_t dst; /* device addresses of the job's elements [0, ..., 0] */
	uint64_t src;
};

/* Prepares a round. The caller has set the fields before `part` and zeroed the others. */
void round_init(struct round *round);

/* Enqueues the whole round on its streams. Returns 0 or an error. After an error, part of the round may have
 * been enqueued if round->last is set. */
int round_carry(struct round *round, struct error *err);

/* Makes later work on `to` wait for everything that the round has enqueued so far. Returns 0 or the driver's
 * error. */
int round_pass(struct round *round, CUstream to, struct error *err);

#endif
