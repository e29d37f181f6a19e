/* SPDX-License-Identifier: Apache-2.0 */
/* The largest magnitudes of blocks between the two passes of moves with amax: room for those of one move at a
 * time, in an in-flight job's upload buffer, since the moves of a job follow each other on a stream.
 */
#ifndef KERNELS_CUDA_MAGNITUDES_H
#define KERNELS_CUDA_MAGNITUDES_H

#include <stdbool.h>

#include "in_flight.h"

/* Whether a move of the job has two passes. */
bool magnitudes_are_needed(const struct engine_job *job);

/* Takes in_flight->magnitudes, or 0 if there is no need: the first thing in an upload buffer that has begun.
 */
int magnitudes_take(struct in_flight_job *in_flight, struct error *err);

#endif
