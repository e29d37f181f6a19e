/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that exact casts have changed: a counter for each move of an in-flight job, in its upload buffer,
 * which the device adds to. A job with a signal ends in a second round, which signals once the counters have
 * been seen to be 0.
 */
#ifndef KERNELS_CUDA_CHANGED_H
#define KERNELS_CUDA_CHANGED_H

#include <stdbool.h>

#include "in_flight.h"

/* Whether a move of the job has an exact cast. */
bool changed_is_counted(const struct engine_job *job);

/* Takes the counters, zeroes, of a job that has some, in an upload buffer that has begun: before lists and
 * tables. They are sent with what follows. NO_MEMORY: more than the buffer holds. */
int changed_take(struct in_flight_job *in_flight, struct error *err);

/* Where that of move i of the job is, on the device, by upload_buffer_send's base; 0: it has none. */
uint64_t changed_place(const struct in_flight_job *in_flight, const struct engine_move *move, uint32_t i,
                       uint64_t base);

/* Brings them back, after what is on the stream. */
int changed_fetch(struct in_flight_job *in_flight, CUstream stream, struct error *err);

/* Once that has happened: each move that has changed an element has OUT_OF_RANGE. Gives the first failure of
 * the job.
 */
int changed_land(struct in_flight_job *in_flight);

#endif
