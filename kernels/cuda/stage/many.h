/* SPDX-License-Identifier: Apache-2.0 */
/* This launches a whole job at once, without staging. What a job of several moves or a conversion needs is
 * laid out in an upload buffer first. */
#ifndef KERNELS_CUDA_STAGE_MANY_H
#define KERNELS_CUDA_STAGE_MANY_H

#include <cuda.h>

#include "kernels/cuda/launch/launch.h"
#include "kernels/engine.h"
#include "upload_buffer.h"

struct many {
	struct launcher *launcher;
	struct upload_buffer *upload_buffer; /* a flight's own, or borrowed for this launch */
	struct engine_job *job;
	CUstream stream;
};

/* Puts the whole job on the stream: a move, a move over a list of blocks, or a batch. A move of a batch that
 * cannot be launched gets its status, and the others go on. */
int many_launch(const struct many *many, struct error *err);

/* Puts a move over a list that the host has on the stream, and sets its family. dst and src are the device's
 * addresses of elements [0, ..., 0] of block 0 of layer 0. */
int many_launch_blocks(const struct many *many, struct engine_blocks *blocks, uint64_t dst, uint64_t src,
                       struct error *err);

/* Completes a job that has ended without an error: the counts of entries, if the device has read the list,
 * and the status of a batch. */
int many_land(struct upload_buffer *upload_buffer, struct engine_job *job);

#endif
