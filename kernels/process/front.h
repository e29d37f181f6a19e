/* SPDX-License-Identifier: Apache-2.0 */
/* The front is an engine whose operations a child does.
 *
 * Three sorts of threads meet here. The owner's has streams and jobs, and the ends of both rings: it alone
 * writes to the child and reads what comes back (front_ring.c). A thread of the front's own has the child
 * (front.c): it starts it, wakes the owner when something has come back, sees it end, and starts the next
 * one, in which it maps everything anew. Any thread maps and unmaps memory (front_memory.c).
 *
 * The owner learns at its own pace what becomes of the child: it keeps the child that its jobs are with until
 * it has ended all of them.
 */
#ifndef KERNELS_PROCESS_FRONT_H
#define KERNELS_PROCESS_FRONT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "child.h"
#include "kernels/engine.h"
#include "kernels/plan_cache.h"
#include "kernels/queue/fair_queue.h"
#include "proto/wire/frame.h"

/* Each small number is in use once. The next one is one that was given back, if there is any. A zeroed struct
 * has given out none yet. */
struct numbers {
	uint32_t next;  /* least number that was never in use */
	uint32_t n;     /* numbers that were given back */
	uint32_t room;  /* room in `back`, for all numbers given out so far */
	uint32_t *back; /* the numbers that were given back */
};

/* Returns false when out of memory. */
static inline bool numbers_take(struct numbers *numbers, uint32_t *ret)
{
	if (numbers->n == 0 && numbers->next == numbers->room) {
		const uint32_t room = numbers->room ? 2 * numbers->room : 64;
		uint32_t *grown = realloc(numbers->back, room * sizeof *grown);

		if (!grown)
			return false;
		numbers->back = grown;
		numbers->room = room;
	}
	*ret = numbers->n > 0 ? numbers->back[--numbers->n] : numbers->next++;
	return true;
}

static inline void numbers_give(struct numbers *numbers, uint32_t number)
{
	numbers->back[numbers->n++] = number;
}

static inline void numbers_deinit(struct numbers *numbers)
{
	free(numbers->back);
	*numbers = (struct numbers){ 0 };
}

/* These are deadlines. Tests have shorter ones. */
struct front_times {
	uint64_t open_ms;  /* for a child to open its engine */
	uint64_t map_ms;   /* to map one memory anew, beside its share by size */
	uint64_t pulse_ms; /* for a sign of life, after the last one */
};
extern struct front_times front_times;

enum front_state {
	FRONT_OPENING, /* the first child opens its engine */
	FRONT_UP,
	FRONT_AWAY, /* there is no child that can be used, for now */
	FRONT_FAILED,
};

/* The child has this job. */
struct front_job {
	struct engine_job *job; /* NULL: no job has the number */
	struct engine_stream *stream;
	uint32_t bytes; /* bytes of its message */
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct front *front;
	uint32_t number;
	bool is_known; /* the child knows the stream */
	struct job_list unsent;
	struct job_list sent; /* jobs that the child has, in order */
	uint64_t sent_bytes;
	LIST_ENTRY(engine_stream) entry;
};

struct front {
	struct engine engine;
	struct wire_hello hello; /* what each child is told; `plans` changes, under the lock */
	void (*wake)(void *arg);
	void *wake_arg;
	int wake_fd;
	bool drives;
	uint64_t pause_ms; /* longest pause before a child that follows one that ended soon after its start */
	char name[16];

	/* The threads share these, under the lock. `news` counts the changes of the state and the child. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum front_state state;
	bool is_closing;
	struct child *child; /* NULL: there is none */
	struct error failed; /* why there was none the last time */
	uint32_t dropped;    /* number of memories that could not be mapped anew */
	uint32_t failures;   /* children that could not be used, but for the first */
	atomic_uint news;
	TAILQ_HEAD(, front_memory) memories;
	SLIST_HEAD(, front_layout) forgotten; /* plans that are gone, whose numbers the child may know */
	struct numbers memory_numbers;
	struct front_memory *mapping; /* memory that the front's own thread is mapping anew */

	/* These belong to its own thread. `silence`, which the owner asks for, is also guarded by the lock.
	 */
	pthread_t thread;
	int stir;             /* eventfd that is written to have the thread look around */
	uint64_t pulse_ns;    /* when the next sign of life is due */
	uint32_t silent;      /* signs of life that have been missing in a row */
	struct error silence; /* status 0: the last sign of life was there */

	/* These belong to the owner's thread. */
	struct child *own; /* the child that has its jobs */
	unsigned seen;     /* value of `news` when it last looked */
	LIST_HEAD(, engine_stream) streams;
	struct numbers stream_numbers;
	struct fair_queue unsent; /* streams that have something to send, and may */
	struct plan_cache plans;
	struct numbers layout_numbers;
	struct numbers job_numbers;
	struct front_job *jobs; /* by number */
	uint32_t jobs_room;
	uint32_t n_sent;
	bool is_small; /* the job under way is small, and the only one */
	uint32_t dull; /* spins still to be left out, because the last ones were in vain */
	uint32_t in_vain;
	bool bell_is_due;
	bool may_be_woken; /* the child has been asked to */
	struct buffer out; /* bytes for which the ring had no room */
	struct buffer in;  /* beginning of a message that has not come completely */
	struct job_list done;
	uint32_t cancels;
	bool cancels_fail;                      /* the child did not answer the last time */
	struct engine_cache_stats before;       /* counts of former children's tensor maps */
	struct engine_cache_stats plans_before; /* counts of former children's plans */
};

static inline struct front *front_of(struct engine *engine)
{
	return (struct front *)engine;
}

/* ---- front_ring.c: streams, as engine_stream_new and its kin have them --------------------------------- */

struct engine_stream *front_stream_new(struct engine *engine, struct engine_owner *owner);
void front_stream_free(struct engine_stream *stream);
void front_submit(struct engine_stream *stream, struct engine_job *job);
void front_stream_cancel(struct engine_stream *stream);
bool front_cancel(struct engine_stream *stream, struct engine_job *job);

/* ---- front_ring.c: the owner's thread's --------------------------------------------------------------- */

/* Takes notice of a new state or child. */
void front_catch_up(struct front *front);

/* Sends the jobs of streams, as far as there is room. */
void front_send_jobs(struct front *front);

/* Sends a message that does not wait for room, since there are few of them. cancel is the number of the
 * request to cancel. */
void front_send_number(struct front *front, enum wire_kind kind, uint32_t number, uint32_t cancel);

/* Handles the messages that have come back. */
void front_receive(struct front *front);

/* ---- front.c ------------------------------------------------------------------------------------------ */

/* Checks if the child has given the sign of life that is due, and asks for the next one. Returns false if it
 * has been silent for too long, and was killed. Must be called on the front's own thread. */
bool front_pulse(struct front *front, struct child *child);

/* ---- front_job.c -------------------------------------------------------------------------------------- */

extern const struct plan_cache_ops front_plan_ops;

/* Tells the child to forget the plans that are gone. Must be called on the owner's thread. */
void front_forget_plans(struct front *front);

/* Adds up the counts of a child that has ended. */
void front_keep_stats(struct front *front);

/* These implement engine_explain and its kin. */
int front_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                  struct error *err);
void front_cache_stats(struct engine *engine, struct engine_cache_stats *ret);
void front_add_plan_stats(struct engine *engine, struct engine_cache_stats *ret);
void front_keep_plans(struct engine *engine, uint64_t n);
void front_tune(struct engine *engine, bool tunes);

/* Tells the child what front_keep_plans and front_tune have set. Must be called under the lock. */
void front_tell_plans(const struct front *front, struct child *child);

/* Tells if the child has all the memory that the job names. */
bool front_job_is_mapped(struct child *child, const struct engine_job *job);

/* Appends the job's messages to what is to be sent, and sets their bytes. Returns 0 or NO_MEMORY. */
int front_job_write(struct front *front, const struct engine_stream *stream, uint32_t number,
                    const struct engine_job *job, size_t *ret_bytes);

/* Sets the outcome of a job by the child's message. Returns false if the message does not fit the job. */
bool front_job_read(const struct wire_done *done, struct engine_job *job);

/* ---- front_kept.c ------------------------------------------------------------------------------------- */

/* Memories share an allocation, with the descriptor that it came with. */
struct front_chunk {
	atomic_uint refs;
	int fd;
	uint64_t size;
};

struct front_memory {
	struct engine_memory base;
	struct front *front;
	TAILQ_ENTRY(front_memory) entry;
	uint32_t number;
	atomic_uint_fast64_t life; /* `life` of the child that has it; 0: none */
	bool is_leaving;           /* somebody unmaps it */
	struct engine_memory *host;
	uint64_t of_child[2]; /* identity of the memory in the child */

	/* These serve to map it anew. The descriptor belongs to this struct, unless is_lent. */
	bool comes_back;
	bool is_lent; /* the descriptor belongs to the host mapping or the allocation */
	struct engine_handle handle;
	uint8_t bytes[ENGINE_HANDLE_BYTES]; /* bytes that the handle points to */
	struct memory_chunks chunks;        /* n is 0 if no other memory has any of it */
	struct front_chunk **list;          /* allocations of chunks, in the same order */
};

static inline struct front_memory *front_memory_of(struct engine_memory *memory)
{
	return (struct front_memory *)memory;
}

/* Tells if the byte at `at` of a memory lies in a part of it. */
static inline bool front_part_has(const struct engine_part *part, uint64_t at)
{
	return at >= part->offset && at - part->offset < part->size;
}

/* Keeps what it takes to map a memory anew. Its host mapping must have been made before. */
int front_memory_keep(struct front_memory *memory, const struct engine_handle *handle, struct error *err);

/* Sets the fields of a memory that the owner sees. */
int front_memory_describe(struct front *front, struct front_memory *memory,
                          const struct engine_handle *handle, const struct wire_answer *result,
                          struct error *err);

/* Gives the memory a backing, by which its failure is noticed, if the child has found that it may fail. */
int front_memory_give_backing(struct front_memory *memory, bool has_backing, struct error *err);

/* Frees all but the struct. */
void front_memory_let_go(struct front_memory *memory);

/* ---- front_memory.c: as engine_map and its kin -------------------------------------------------------- */

/* Returns the child to use, with a reference, or NULL with DEVICE_LOST if there is none for now. */
struct child *front_child(struct front *front, struct error *err);

int front_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
              struct error *err);
int front_make(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
               struct engine_export *ret_export, struct error *err);
int front_settle(struct engine *engine, struct engine_memory *memory, const atomic_bool *unwanted,
                 struct error *err);
bool front_unmap(struct engine *engine, struct engine_memory *memory);
void front_link(struct engine *engine, const char *uuid, struct engine_link *ret);

/* Sets the number of a memory. Returns false if the child does not have it. NULL is WIRE_NONE, which it has;
 * without a child every memory is taken for its own. */
bool front_memory_number(const struct child *child, const struct engine_memory *memory, uint32_t *ret);

/* Notes that the device has pinned pages of a memory that its file does not have any more. */
void front_memory_lose_pins(struct front *front, uint32_t number);

/* Maps all memory anew in a new child. Must be called on the front's own thread. Returns DEVICE_LOST if the
 * child has ended meanwhile, or hangs; the memory that it was mapping for too long is dropped. */
int front_map_anew(struct front *front, struct child *child, uint32_t *ret_dropped, struct error *err);

#endif
