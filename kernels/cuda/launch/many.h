/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of more than one move: lays out what they need in the in-flight job's upload buffer, and launches
 * them. */
#ifndef KERNELS_CUDA_LAUNCH_MANY_H
#define KERNELS_CUDA_LAUNCH_MANY_H

#include "kernels/cuda/in_flight.h"

/* Puts the whole job on the stream: a move over a list of blocks, or a batch. A batch's move
 * that cannot be launched has its status; the others go on. */
int many_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight, CUstream stream,
                struct error *err);

/* Puts a move over a list that the host has on the stream; its family is set. dst, src: elements [0, ..., 0]
 * of the block 0 of layer 0, for the device. Uses the in-flight job's upload buffer until it has ended. */
int many_launch_blocks(struct in_flight_pool *pool, struct in_flight_job *in_flight, CUstream stream,
                       const struct transform *transform, struct engine_blocks *blocks, uint64_t dst,
                       uint64_t src, struct error *err);

/* Once that has ended without an error: counts of entries, of a list that was read on the device; the status
 * of a batch. */
int many_land(struct in_flight_job *in_flight);

#endif
