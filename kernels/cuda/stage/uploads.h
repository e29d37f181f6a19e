/* SPDX-License-Identifier: Apache-2.0 */
/* Lists for kernels are laid out in pinned pages of the host and copied to memory of the device.
 *
 * An upload buffer is both. Each flight has one, which is opened when it is first needed and then kept; what
 * lies in it stays until the flight has ended. A launch into a stream of the program's own borrows one of the
 * size that it needs from uploads instead. */
#ifndef KERNELS_CUDA_STAGE_UPLOADS_H
#define KERNELS_CUDA_STAGE_UPLOADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "jobs.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/launch.h"

/* ---- Uploads ------------------------------------------------------------------------------------------- */

/* Pages are lent to a launch into a stream of the program's own, and come back once the device has passed it;
 * its memory of the device is allocated and freed in the stream's order. A launch that is captured gets
 * memory of the device that belongs to the graph instead: the lists are there before the capture goes on, so
 * that the graph has no node that allocates or copies, and the memory is freed once the graph and all that
 * was instantiated from it are destroyed. Any thread may take and give, and none waits for work of the
 * program's on the device. */

/* Pages have at least so many bytes, which is more than the lists of any message take, tables of layers
 * included, and otherwise a power of two. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct graph_memory;

struct upload {
	char *host;                   /* pinned */
	size_t size;                  /* bytes of the pages */
	CUdeviceptr device;           /* memory of the device, while the pages are lent */
	CUevent passed;               /* recorded on the stream when the pages are given back */
	CUgraph graph;                /* the graph that is being captured; NULL: none is */
	struct graph_memory *holding; /* owns the memory of the device if there is a graph */
	struct uploads *of;
	TAILQ_ENTRY(upload) entry;
};

TAILQ_HEAD(upload_list, upload);

struct uploads {
	CUmemoryPool pool;
	CUstream stream;      /* Lists of captured launches are copied on it. */
	pthread_mutex_t lock; /* It guards what follows. */
	struct upload_list free;
	struct upload_list under_way; /* given back, oldest first; the device may still read them */
	uint64_t long_bytes;          /* bytes of all pages that are larger than UPLOAD_BUFFER_BYTES */
	_Atomic(struct graph_memory *) left_over; /* memory of graphs that are gone; not under the lock */
};

/* The context of the device must be current. The call is allowed during a capture only between capture_allow
 * and capture_restore. Returns 0, or the driver's error; uploads_deinit must follow in any case. */
int uploads_init(struct uploads *uploads, CUdevice device, struct error *err);

/* Frees all pages and all memory. None may be lent or held by a graph. */
void uploads_deinit(struct uploads *uploads);

/* Lends pages of at least size bytes, and size bytes of the device, to work that follows on the stream.
 * Returns 0, NO_MEMORY or the driver's error. */
int upload_take(struct uploads *uploads, CUstream stream, size_t size, struct upload **ret,
                struct error *err);

/* Gives both back after the last of that work. Returns 0, or the driver's error, after which the pages are
 * lost if the device may still read them. */
int upload_give(struct upload *upload, CUstream stream, struct error *err);

/* ---- Upload buffers ------------------------------------------------------------------------------------ */

/* Beside lists, moves may need two things in an upload buffer:
 *
 * - the largest magnitudes of blocks, between the two passes of a move with amax. The moves of a job follow
 *   each other on a stream, so there is room for those of one move at a time.
 * - counters of the elements that exact casts have changed, one for each move, which the device adds to. A
 *   job with a signal ends in a second round, which signals once the counters have been seen to be 0.
 * Launches into the program's own streams use counters that outlive the job (struct engine_counts).
 */

struct upload_buffer {
	char *host;      /* pinned; NULL: the buffer is not open */
	size_t size;     /* bytes, on either side */
	uint64_t device; /* memory on the device, of the same layout */
	size_t used;
	size_t first;        /* offset at which the bytes to send begin */
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
