/* Jobs of more than one move, on their way over the device: what is laid out on the flight's desk, and
 * launched. */
#ifndef KERNELS_CUDA_MANY_H
#define KERNELS_CUDA_MANY_H

#include "kernels/cuda/in_flight.h"

/* Puts all of the flight's job on the stream: a move over a list of blocks, or a batch. A batch's move that
 * cannot be launched has its status; the others go on. */
int many_launch(struct flights *flights, struct flight *flight, CUstream stream, struct error *err);

/* Once that has ended without an error: counts of entries, of a list that was read on the device; the status
 * of a batch. */
int many_land(struct flight *flight);

#endif
