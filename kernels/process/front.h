/* SPDX-License-Identifier: Apache-2.0 */
/* The front: an engine whose operations are a child's.
 *
 * Three sorts of threads meet here. The owner's has streams and jobs (front.c, front_stream.c), and the ends
 * of both rings: it alone writes to the child and reads what comes back (front_ring.c). A thread of the
 * front's own has the child (front_life.c): it starts it, wakes the owner when something has come back, sees
 * it end, and starts the next one, in which it maps everything anew. Any thread maps and unmaps memory
 * (front_memory.c).
 *
 * The owner learns at its own pace what becomes of the child: it keeps the child that its jobs are with until
 * it has ended all of them.
 */
#ifndef KERNELS_PROCESS_FRONT_H
#define KERNELS_PROCESS_FRONT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "child.h"
#include "kernels/engine.h"
#include "kernels/plan_cache.h"
#include "kernels/queue/fair_queue.h"
#include "kernels/queue/job_list.h"
#include "numbers.h"
#include "proto/wire/buffer.h"

/* Deadlines; tests have shorter ones. */
struct front_times {
	uint64_t open_ms;  /* for a child to open its engine */
	uint64_t map_ms;   /* to map one memory anew, beside its share by size */
	uint64_t pulse_ms; /* for a sign of life, after the last one */
};
extern struct front_times front_times;

enum front_state {
	FRONT_OPENING, /* the first child */
	FRONT_UP,
	FRONT_AWAY, /* there is no child that can be used, for now */
	FRONT_FAILED,
};

/* A job that the child has. */
struct front_job {
	struct engine_job *job; /* NULL: no job has the number */
	struct engine_stream *stream;
	uint32_t bytes; /* of its message */
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct front *front;
	uint32_t number;
	bool is_known; /* to the child */
	struct job_list unsent;
	struct job_list sent; /* in their order */
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
	uint64_t pause_ms; /* at most, before a child that follows one that ended soon after its start */
	char name[16];

	/* What the threads share, under the lock; news: times that the state or the child has changed. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum front_state state;
	bool is_closing;
	struct child *child; /* NULL: there is none */
	struct error failed; /* why there was none the last time */
	uint32_t dropped;    /* memories that could not be mapped anew */
	uint32_t failures;   /* children that could not be used, but for the first */
	atomic_uint news;
	TAILQ_HEAD(, front_memory) memories;
	SLIST_HEAD(, front_layout) forgotten; /* plans that are gone, whose numbers the child may know */
	struct numbers memory_numbers;
	struct front_memory *mapping; /* that the front's own thread is mapping anew */

	/* Its own thread's; silence, which the owner asks for, is under the lock too. */
	pthread_t thread;
	int stir;             /* an eventfd: written when it is to look what there is */
	uint64_t pulse_ns;    /* when the next sign of life is due */
	uint32_t silent;      /* how many in a row there have not been */
	struct error silence; /* status: 0: the last one was there */

	/* The owner's. */
	struct child *own; /* that has its jobs */
	unsigned seen;     /* of news */
	LIST_HEAD(, engine_stream) streams;
	struct numbers stream_numbers;
	struct fair_queue unsent; /* streams that have something to send, and may */
	struct plan_cache plans;
	struct numbers layout_numbers;
	struct numbers job_numbers;
	struct front_job *jobs; /* by number */
	uint32_t jobs_room;
	uint32_t n_sent;
	bool is_small; /* the one job under way */
	uint32_t dull; /* spins that are left out, because the last ones were in vain */
	uint32_t in_vain;
	bool bell_is_due;
	bool may_be_woken; /* the child has been asked to */
	struct buffer out; /* what the ring had no room for */
	struct buffer in;  /* of a message that has not come completely */
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

/* ---- front_stream.c: as engine_stream_new and its kin ------------------------------------------------- */

struct engine_stream *front_stream_new(struct engine *engine, struct engine_owner *owner);
void front_stream_free(struct engine_stream *stream);
void front_submit(struct engine_stream *stream, struct engine_job *job);
void front_stream_cancel(struct engine_stream *stream);
bool front_cancel(struct engine_stream *stream, struct engine_job *job);

/* ---- front_ring.c: the owner's thread's --------------------------------------------------------------- */

/* Sees what has become of the child. */
void front_catch_up(struct front *front);

/* The stream stands in the queue while it has something to send, and may. */
void front_offer(struct engine_stream *stream);

/* Sends what streams have, as far as there is room. */
void front_send_jobs(struct front *front);

/* A message that does not wait for room: there are few of them. cancel: of the request. */
void front_send_number(struct front *front, enum wire_kind kind, uint32_t number, uint32_t cancel);

/* Takes what has come back. */
void front_receive(struct front *front);

/* A job that the child does not have ends so, when the owner reaps; and all that a stream has not sent. */
void front_end_job(struct front *front, struct engine_job *job, int status, bool begun);
void front_end_unsent(struct engine_stream *stream, int status);

/* ---- front_life.c ------------------------------------------------------------------------------------- */

/* The thread: until the front is closed. */
void *front_live(void *arg);

/* It looks what there is. */
void front_stir(struct front *front);

/* The child is of no more use: it is ended, and what follows is as if it had ended by itself. */
void front_give_up(struct child *child);

/* ---- front_pulse.c: its own thread's ------------------------------------------------------------------ */

/* Of a new child. */
void front_pulse_start(struct front *front);

/* In how many ms front_pulse has something to do. */
int front_pulse_ms(const struct front *front);

/* Sees whether the child has given the sign of life that is due, and asks for the next one. false: it has
 * been silent for too long, and been killed. */
bool front_pulse(struct front *front, struct child *child);

/* ---- front_plan.c ------------------------------------------------------------------------------------ */

extern const struct plan_cache_ops front_plan_ops;

/* Makes the plan known to the child, and sets *ret to the number by which the child knows it. If the child
 * does not know it yet, a message is appended to what is to be sent. Returns 0 or NO_MEMORY. Must be called
 * on the owner's thread. */
int front_plan_send(struct front *front, const struct engine_plan *plan, uint32_t *ret);

/* Returns the plan's number, once front_plan_send has succeeded. */
uint32_t front_plan_number(const struct engine_plan *plan);

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

/* Tells the child what these have set. Under the lock. */
void front_tell_plans(const struct front *front, struct child *child);

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

/* The number of a memory that the child has; false: it does not have it. NULL is WIRE_NONE, which it has. */
bool front_memory_number(const struct child *child, const struct engine_memory *memory, uint32_t *ret);

/* The device has pages of it that its file does not have any more. */
void front_memory_lose_pins(struct front *front, uint32_t number);

/* Maps all that there is in a new child; the front's thread's. DEVICE_LOST: the child has ended meanwhile, or
 * hangs; what it was to map then for too long is dropped. */
int front_map_anew(struct front *front, struct child *child, uint32_t *ret_dropped, struct error *err);

/* ---- front_job.c -------------------------------------------------------------------------------------- */

/* Whether the child has all the memory that the job names. */
bool front_job_is_mapped(const struct child *child, const struct engine_job *job);

/* Appends the job's messages to what is to be sent; *ret_bytes of them. NO_MEMORY. */
int front_job_write(struct front *front, const struct engine_stream *stream, uint32_t number,
                    const struct engine_job *job, size_t *ret_bytes);

/* Takes over what has become of it; false: the message is none of ours. */
bool front_job_read(const struct wire_done *done, struct engine_job *job);

#endif
