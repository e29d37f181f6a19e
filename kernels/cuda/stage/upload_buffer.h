/* SPDX-License-Identifier: Apache-2.0 */
/* An upload buffer is memory in which the host lays out lists for a kernel, and the same amount on the
 * device.
 *
 * Each flight has one, which is opened when it is first needed and then kept. What lies in it stays until the
 * flight has ended. A launch into a stream of the program's own borrows one of the size that it needs instead
 * (uploads.h). Beside lists, moves may need two things there:
 *
 * - the largest magnitudes of blocks, between the two passes of a move with amax. The moves of a job follow
 *   each other on a stream, so there is room for those of one move at a time.
 * - counters of the elements that exact casts have changed, one for each move, which the device adds to. A
 *   job with a signal ends in a second round, which signals once the counters have been seen to be 0.
 * Launches into the program's own streams use counters that outlive the job (struct engine_counts).
 */
#ifndef KERNELS_CUDA_STAGE_UPLOAD_BUFFER_H
#define KERNELS_CUDA_STAGE_UPLOAD_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/convert.h"
#include "uploads.h"

struct upload_buffer {
	char *host;      /* pinned; NULL: the buffer is not open */
	size_t size;     /* bytes, on either side */
	uint64_t device; /* memory on the device, of the same layout */
	size_t used;
	size_t first;        /* What is sent begins there. */
	uint64_t counted[2]; /* the counters of lists, as they were last seen */
	uint64_t magnitudes; /* their address on the device; 0: there are none */
	uint64_t *changed;   /* a counter for each move; NULL: there are none */

	/* The rest concerns buffers that are borrowed. */
	struct uploads *uploads; /* where it is borrowed from; NULL: the buffer is a flight's own */
	struct upload *upload;   /* what is borrowed now; NULL: nothing */
	CUstream stream;         /* the stream of the launches */
	uint64_t counts;         /* device address of a struct engine_counts */
};

/* Empties the buffer, and opens it first if need be or borrows one with that room. */
int upload_buffer_begin(struct upload_buffer *upload_buffer, size_t room, struct error *err);

/* Frees the flight's own buffer; a zeroed one is allowed. */
void upload_buffer_close(struct upload_buffer *upload_buffer);

/* Gives a borrowed buffer back once all that needs it is on its stream. Returns 0, or the driver's error. */
int upload_buffer_return(struct upload_buffer *upload_buffer, struct error *err);

/* Returns the bytes of the buffer that so many bytes take. */
static inline size_t upload_buffer_room(size_t bytes)
{
	return (bytes + 15) & ~(size_t)15;
}

/* Returns room for so many bytes, at a multiple of 16, or NULL if the buffer is full. */
void *upload_buffer_take(struct upload_buffer *upload_buffer, size_t bytes);

/* Has kernels that follow on the stream read what is in the buffer so far. *ret is the address at which the
 * buffer begins for them. */
int upload_buffer_send(struct upload_buffer *upload_buffer, CUstream stream, uint64_t *ret,
                       struct error *err);

static inline uint64_t upload_buffer_place(const struct upload_buffer *upload_buffer, uint64_t base,
                                           const void *p)
{
	return base + (uint64_t)((const char *)p - upload_buffer->host);
}

/* Returns the address of two uint64_t on the device, to which kernels add. */
static inline uint64_t upload_buffer_counters(const struct upload_buffer *upload_buffer)
{
	return upload_buffer->uploads ? upload_buffer->counts : upload_buffer->device;
}

/* Brings those counters back, after what is on the stream. */
int upload_buffer_fetch_counters(struct upload_buffer *upload_buffer, CUstream stream, struct error *err);

/* Sets what has been added to the counters since the last time, once they are back. */
void upload_buffer_count(struct upload_buffer *upload_buffer, uint64_t ret[2]);

/* ---- What moves need ----------------------------------------------------------------------------------- */

/* Prepares for a job that has nothing in the buffer yet. */
static inline void upload_buffer_clear(struct upload_buffer *upload_buffer)
{
	upload_buffer->magnitudes = 0;
	upload_buffer->changed = NULL;
}

/* Returns whether the job's moves need anything in the buffer. A borrowed one does not hold the counters of
 * exact casts. */
bool upload_buffer_is_needed(const struct upload_buffer *upload_buffer, const struct engine_job *job);

/* Does what upload_buffer_begin does, and makes room for what the moves need beside it. Returns NO_MEMORY if
 * that is more than the buffer holds. */
int upload_buffer_begin_job(struct upload_buffer *upload_buffer, const struct engine_job *job, size_t room,
                            struct error *err);

/* Returns the operands of move i of the job, once all has been sent; base is that of upload_buffer_send. */
struct convert_operands upload_buffer_operands(const struct upload_buffer *upload_buffer,
                                               struct engine_job *job, uint32_t i, uint64_t base);

/* Brings the counters of exact casts back, if there are any, after what is on the stream. */
int upload_buffer_fetch_changed(struct upload_buffer *upload_buffer, const struct engine_job *job,
                                CUstream stream, struct error *err);

/* Gives each move that has changed an element the status OUT_OF_RANGE, once the counters are back. Returns
 * the first failure of the job. */
int upload_buffer_judge(const struct upload_buffer *upload_buffer, struct engine_job *job);

#endif
