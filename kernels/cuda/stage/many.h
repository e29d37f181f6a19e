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

/* The device has this list already: addresses of its entries, which name blocks in any case, and of the
 * sides' layers, if they are not evenly spaced. */
struct many_list {
	uint64_t index;
	uint64_t dst_layers, src_layers;
};

/* Puts the move over such a list on the stream, and sets the family of blocks. The move does not convert. dst
 * and src are the device's addresses of elements [0, ..., 0] of block 0 of layer 0. */
int many_launch_listed(struct launcher *launcher, CUstream stream, const struct engine_move *move,
                       struct engine_blocks *blocks, const struct many_list *list, uint64_t dst, uint64_t src,
                       struct error *err);

/* Completes a job that has ended without an error: the counts of entries, if the device has read the list,
 * and the status of a batch. */
int many_land(struct upload_buffer *upload_buffer, struct engine_job *job);

#endif
