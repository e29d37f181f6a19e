/* SPDX-License-Identifier: Apache-2.0 */
/* Lists for kernels are written to pinned pages of the host and then copied to device memory.
 *
 * An upload buffer is such a pair of host pages and device memory. Each flight (a job under way in the
 * engine) has one, which is opened when it is first needed and then kept; its contents stay until the flight
 * has ended. A launch into one of the program's own streams borrows pages of the size that it needs from
 * struct uploads instead.
 */
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

/* Pages are lent to a launch into one of the program's own streams and come back once the device has passed
 * that launch. The device memory that goes with them is allocated and freed in the stream's order.
 *
 * A launch that is being captured gets device memory that belongs to the graph instead. The lists are copied
 * there before the capture goes on, so that the graph needs no node that allocates or copies; the memory is
 * freed once the graph and everything instantiated from it have been destroyed.
 *
 * Any thread may take and give pages, and none waits for the program's work on the device.
 */

/* Minimum size of lent pages in bytes; the sizes of larger ones are powers of two. The lists that come in a
 * message, tables of layers included, always fit into pages of the minimum size. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct graph_memory;

struct upload {
	char *host;                   /* pinned pages */
	size_t size;                  /* bytes of the pages */
	CUdeviceptr device;           /* device memory of the list, while the pages are lent */
	CUevent passed;               /* event recorded on the stream when the pages are given back */
	CUgraph graph;                /* graph into which the launch is being captured; NULL: no capture */
	struct graph_memory *holding; /* owner of the device memory if graph is not NULL */
	struct uploads *of;           /* lender of the pages */
	TAILQ_ENTRY(upload) entry;
};

TAILQ_HEAD(upload_list, upload);

struct uploads {
	CUmemoryPool pool;    /* device memory for lists, results and scratch */
	CUstream stream;      /* on which lists of captured launches are copied */
	pthread_mutex_t lock; /* guards the fields below, except left_over */
	struct upload_list free;
	struct upload_list under_way; /* given back, oldest first; the device may still read them */
	uint64_t long_bytes;          /* bytes of all pages that are larger than UPLOAD_BUFFER_BYTES */
	/* Lock-free stack of memory that is to be freed because its graph has been destroyed. */
	_Atomic(struct graph_memory *) left_over;
};

/* The device's context must be current. During a capture, the caller must be between capture_allow and
 * capture_restore. Returns 0, or the driver's error; the caller calls uploads_deinit in either case. */
int uploads_init(struct uploads *uploads, CUdevice device, struct error *err);

/* Frees all pages and all device memory. None may be lent or held by a graph. */
void uploads_deinit(struct uploads *uploads);

/* Lends pages of at least `size` bytes, and `size` bytes of device memory, for work that is enqueued on the
 * stream next. Returns 0, NO_MEMORY or the driver's error. */
int upload_take(struct uploads *uploads, CUstream stream, size_t size, struct upload **ret,
                struct error *err);

/* Gives pages and device memory back; the caller has enqueued the last work that uses them. Returns 0 or the
 * driver's error. After an error the pages are leaked if the device may still read them. */
int upload_give(struct upload *upload, CUstream stream, struct error *err);

/* ---- Upload buffers ------------------------------------------------------------------------------------ */

/* Beside lists, moves may need two things in an upload buffer:
 *
 *  - The largest magnitudes of blocks, between the two passes of a move with amax. The moves of a job follow
 *    each other on one stream, so there is room for the magnitudes of one move at a time.
 *  - Counters of the elements that exact casts have changed, one for each move, which the device adds to. A
 *    job with a signal ends in a second round, which signals only after the counters have been seen to be 0.
 *
 * Launches into the program's own streams use counters that outlive the job (struct engine_counts).
 */

struct upload_buffer {
	char *host;      /* pinned pages; NULL: the buffer is not open */
	size_t size;     /* bytes of the pages, and of the device memory */
	uint64_t device; /* address of the device memory, which has the same layout */
	size_t used;     /* bytes in use from the start */
	size_t first;    /* offset at which the bytes to be sent begin */
	/* Values of the two counters of list entries (upload_buffer_counters) when they were last read. */
	uint64_t counted[2];
	uint64_t magnitudes; /* device address of the magnitudes; 0: the job has none */
	uint64_t *changed;   /* one counter for each move; NULL: the job has none */

	/* The fields from here on concern buffers that are borrowed. */
	struct uploads *uploads; /* lender of the pages; NULL: the buffer is a flight's own */
	struct upload *upload;   /* the pages that are borrowed now; NULL: none */
	CUstream stream;         /* stream of the launches */
	uint64_t counts;         /* device address of a struct engine_counts */
};

/* Empties the buffer. If it is not open, first opens it or, for a borrowed one, borrows pages with room for
 * `room` bytes. Returns 0, NO_MEMORY or the driver's error. */
int upload_buffer_begin(struct upload_buffer *upload_buffer, size_t room, struct error *err);

/* Frees a flight's own buffer; a zeroed one is allowed. */
void upload_buffer_close(struct upload_buffer *upload_buffer);

/* Gives borrowed pages back, after all work that needs them has been enqueued on the stream. Returns 0, or
 * the driver's error. */
int upload_buffer_return(struct upload_buffer *upload_buffer, struct error *err);

/* Returns how many bytes of the buffer upload_buffer_take uses for `bytes` bytes. */
static inline size_t upload_buffer_room(size_t bytes)
{
	return (bytes + 15) & ~(size_t)15;
}

/* Returns `bytes` bytes of the buffer, at a multiple of 16, or NULL if the buffer is full. */
void *upload_buffer_take(struct upload_buffer *upload_buffer, size_t bytes);

/* Makes what is in the buffer so far visible to kernels that are enqueued on the stream next. Sets *ret to
 * the device address of the buffer's start. Returns 0 or the driver's error. */
int upload_buffer_send(struct upload_buffer *upload_buffer, CUstream stream, uint64_t *ret,
                       struct error *err);

static inline uint64_t upload_buffer_place(const struct upload_buffer *upload_buffer, uint64_t base,
                                           const void *p)
{
	return base + (uint64_t)((const char *)p - upload_buffer->host);
}

/* Returns the device address of two uint64_t counters that kernels increase: of list entries that were passed
 * over because they contain a -1, and of other entries that named no block. */
static inline uint64_t upload_buffer_counters(const struct upload_buffer *upload_buffer)
{
	return upload_buffer->uploads ? upload_buffer->counts : upload_buffer->device;
}

/* Enqueues a copy of those counters to the host, behind the work that is on the stream. Does nothing for a
 * borrowed buffer. Returns 0 or the driver's error. */
int upload_buffer_fetch_counters(struct upload_buffer *upload_buffer, CUstream stream, struct error *err);

/* Sets ret to what was added to the counters since the last call. The copy of upload_buffer_fetch_counters
 * must have ended. */
void upload_buffer_count(struct upload_buffer *upload_buffer, uint64_t ret[2]);

/* ---- What moves need ----------------------------------------------------------------------------------- */

/* Returns whether the job's moves need anything in the buffer. Counters of exact casts are not in a borrowed
 * buffer. */
bool upload_buffer_is_needed(const struct upload_buffer *upload_buffer, const struct engine_job *job);

/* Like upload_buffer_begin, and also takes space in the buffer for what the moves need. `room` is the number
 * of bytes that the caller takes later. Also returns NO_MEMORY if the moves need more than the buffer
 * holds. */
int upload_buffer_begin_job(struct upload_buffer *upload_buffer, const struct engine_job *job, size_t room,
                            struct error *err);

/* Returns the operands of move i of the job. The buffer must have been sent; base is the address that
 * upload_buffer_send set. */
struct convert_operands upload_buffer_operands(const struct upload_buffer *upload_buffer,
                                               struct engine_job *job, uint32_t i, uint64_t base);

/* Enqueues a copy of the counters of exact casts, if there are any, to the host, behind the work that is on
 * the stream. Returns 0 or the driver's error. */
int upload_buffer_fetch_changed(struct upload_buffer *upload_buffer, const struct engine_job *job,
                                CUstream stream, struct error *err);

/* Sets the status OUT_OF_RANGE for each move of the job that has changed an element. The counters must have
 * been copied to the host. Returns the job's first failure, or 0. */
int upload_buffer_judge(const struct upload_buffer *upload_buffer, struct engine_job *job);

#endif
