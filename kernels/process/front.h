/* SPDX-License-Identifier: Apache-2.0 */
/* The front is an engine whose operations a child process carries out (process.h).
 *
 * Three kinds of threads meet here. The owner's thread has the streams and jobs and the front's ends of both
 * rings: only it writes to the child's ring and reads what comes back (front_ring.c). The front's own thread
 * manages the child processes (front.c): it starts a child, notices when that child ends, and starts the next
 * one, in which it maps all memory again. Any thread may map and unmap memory (front_memory.c).
 *
 * The owner's thread notices a new child only when it next looks. It keeps a reference to the child that has
 * its jobs until it has ended all of them.
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

/* Assigns small numbers. No number is in use twice at the same time, and numbers that were given back are
 * assigned before new ones. A zeroed struct has assigned none. */
struct numbers {
	uint32_t next;  /* least number that has never been used */
	uint32_t n;     /* number of entries in `back` */
	uint32_t room;  /* capacity of `back`, enough for all numbers that were ever assigned */
	uint32_t *back; /* numbers that were given back */
};

/* Sets *ret to an unused number. Returns false if there is no memory. */
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

/* Deadlines in milliseconds. Tests set shorter ones. */
struct front_times {
	uint64_t open_ms;  /* time for a child to open its engine */
	uint64_t map_ms;   /* time to map one memory again, plus a time that its size allows */
	uint64_t pulse_ms; /* time from one check that the child is alive to the next */
};
extern struct front_times front_times;

enum front_state {
	FRONT_OPENING, /* The first child is opening its engine. */
	FRONT_UP,
	FRONT_AWAY, /* There is no usable child at the moment. */
	FRONT_FAILED,
};

/* A job that the child has. */
struct front_job {
	struct engine_job *job; /* NULL: the number is not in use */
	struct engine_stream *stream;
	uint32_t bytes; /* bytes of its messages */
};

struct engine_stream {
	struct fair_stream fair; /* must be first: fair_queue_next returns it, and it is cast to the stream */
	struct front *front;
	uint32_t number;
	bool is_known; /* The child has been told of the stream. */
	struct job_list unsent;
	struct job_list sent; /* jobs that the child has, in order */
	uint64_t sent_bytes;  /* bytes of the messages of these jobs */
	LIST_ENTRY(engine_stream) entry;
};

struct front {
	struct engine engine;
	struct wire_hello hello; /* sent to each child; the lock guards `plans` and `tunes` */
	void (*wake)(void *arg);
	void *wake_arg;
	int wake_fd;
	bool drives; /* engine_options.drives */
	/* Longest pause before the next child is started if children keep ending soon after their start. */
	uint64_t pause_ms;
	char name[16];

	/* The lock guards the fields from here on. `news` counts changes of state and child. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum front_state state;
	bool is_closing;
	struct child *child; /* reference to the current child; NULL: there is none */
	struct error failed; /* why the last child ended or could not be used */
	uint32_t dropped;    /* total number of memories that could not be mapped again */
	uint32_t failures;   /* number of children that could not be used, apart from the first one */
	atomic_uint news;
	TAILQ_HEAD(, front_memory) memories;
	/* Numbers of plans that have been freed; the child may still know them. */
	SLIST_HEAD(, front_layout) forgotten;
	struct numbers memory_numbers;
	struct front_memory *mapping; /* memory that the front's own thread is mapping again; NULL: none */

	/* The front's own thread owns the fields from here on. The lock also guards `silence`, which the
	 * owner's thread reads. */
	pthread_t thread;
	int stir;             /* eventfd that makes the thread look at the state again */
	uint64_t pulse_ns;    /* monotonic time of the next check that the child is alive */
	uint32_t silent;      /* number of checks in a row that the child has failed */
	struct error silence; /* result of the last check; status 0: the child is alive */

	/* The owner's thread owns the fields from here on. */
	struct child *own; /* reference to the child that has the owner's jobs; NULL: none */
	unsigned seen;     /* value of `news` that the owner's thread has seen */
	LIST_HEAD(, engine_stream) streams;
	struct numbers stream_numbers;
	struct fair_queue unsent; /* streams that have a job to send and may send it */
	struct plan_cache plans;
	struct numbers layout_numbers;
	struct numbers job_numbers;
	struct front_job *jobs; /* array indexed by job number */
	uint32_t jobs_room;     /* entries in `jobs` */
	uint32_t n_sent;        /* jobs that the child has */
	bool is_small;          /* The only job under way is a small one. */
	/* Number of spins that are still to be skipped, because nothing came during the last in_vain spins in
	 * a row. */
	uint32_t dull;
	uint32_t in_vain;
	bool bell_is_due;  /* The child has to be woken at the next engine_drive. */
	bool may_be_woken; /* The child has been asked to wake the owner. */
	struct buffer out; /* bytes to be sent for which the ring had no room */
	struct buffer in;  /* beginning of a message that has not arrived completely */
	struct job_list done;
	uint32_t cancels; /* number of the last request to cancel */
	/* The child did not answer the last request to cancel in time. */
	bool cancels_fail;
	struct engine_cache_stats before;       /* counts of tensor maps in former children */
	struct engine_cache_stats plans_before; /* counts of plans in former children */
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

/* Takes notice of a new state or child, if there is one. */
void front_catch_up(struct front *front);

/* Sends jobs of streams as far as there is room. */
void front_send_jobs(struct front *front);

/* Sends a message about one numbered thing (struct wire_number). The message is queued even if the ring has
 * no room, because there are few such messages. For WIRE_CANCEL, cancel is the word that identifies the
 * request to cancel; otherwise it is 0. */
void front_send_number(struct front *front, enum wire_kind kind, uint32_t number, uint32_t cancel);

/* Handles the messages that have come back. */
void front_receive(struct front *front);

/* ---- front.c ------------------------------------------------------------------------------------------ */

/* If a check is due, checks whether the child has shown that it is alive, and asks it to do so again. Returns
 * false if the child has failed too many checks in a row and has therefore been killed. Only for the front's
 * own thread. */
bool front_pulse(struct front *front, struct child *child);

/* ---- front_job.c -------------------------------------------------------------------------------------- */

extern const struct plan_cache_ops front_plan_ops;

/* Tells the child to forget plans that have been freed, so that their numbers may be reused. Only for the
 * owner's thread. */
void front_forget_plans(struct front *front);

/* Adds the counts of a child that has ended to those of former children. */
void front_keep_stats(struct front *front);

/* These implement engine_explain and other operations of engine_ops. */
int front_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                  struct error *err);
void front_cache_stats(struct engine *engine, struct engine_cache_stats *ret);
void front_add_plan_stats(struct engine *engine, struct engine_cache_stats *ret);
void front_keep_plans(struct engine *engine, uint64_t n);
void front_tune(struct engine *engine, bool tunes);

/* Tells the child the settings of front_keep_plans and front_tune. Caller holds front->lock. */
void front_tell_plans(const struct front *front, struct child *child);

/* Returns whether the child has all the memory that the job names. */
bool front_job_is_mapped(struct child *child, const struct engine_job *job);

/* Appends the messages of a job to front->out, and sets *ret_bytes to their size. Returns 0 or NO_MEMORY. */
int front_job_write(struct front *front, const struct engine_stream *stream, uint32_t number,
                    const struct engine_job *job, size_t *ret_bytes);

/* Sets the outcome of a job from the child's message. Returns false if the message does not fit the job. */
bool front_job_read(const struct wire_done *done, struct engine_job *job);

/* ---- front_kept.c ------------------------------------------------------------------------------------- */

/* An allocation that several memories may share. fd is its descriptor, which is closed when the last of them
 * drops its reference; -1: none. */
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
	atomic_uint_fast64_t life; /* `life` of the child that has mapped it; 0: none has */
	bool is_leaving;           /* A thread is unmapping it. */
	struct engine_memory *host;
	uint64_t of_child[2]; /* identity of the memory in the child */

	/* The fields from here on serve to map the memory again. This struct owns handle.fd unless
	 * is_lent. */
	/* The memory can be mapped again in another child. */
	bool comes_back;
	bool is_lent; /* The host mapping or an allocation owns handle.fd. */
	struct engine_handle handle;
	uint8_t bytes[ENGINE_HANDLE_BYTES]; /* the bytes that handle.handle points to */
	struct memory_chunks chunks;        /* n is 0 if no other memory can share parts of this one. */
	struct front_chunk **list;          /* the allocations in `chunks`, in the same order */
};

static inline struct front_memory *front_memory_of(struct engine_memory *memory)
{
	return (struct front_memory *)memory;
}

/* Returns whether byte `at` of the memory that the part names lies in that part. */
static inline bool front_part_has(const struct engine_part *part, uint64_t at)
{
	return at >= part->offset && at - part->offset < part->size;
}

/* Copies what is needed to map a memory again. Its host mapping, if any, must exist already. Returns 0 or
 * NO_MEMORY. */
int front_memory_keep(struct front_memory *memory, const struct engine_handle *handle, struct error *err);

/* Sets those fields of a memory that the owner sees. handle is what the memory was mapped or made from, and
 * result the child's answer. Returns 0 or NO_MEMORY. */
int front_memory_describe(struct front *front, struct front_memory *memory,
                          const struct engine_handle *handle, const struct wire_answer *result,
                          struct error *err);

/* has_backing: in the child the memory has a backing (kernels/host/backing.h), because it may lose pages. If
 * so, makes sure that it has one here, too, in which such a loss can be noted. Returns 0 or an error. */
int front_memory_give_backing(struct front_memory *memory, bool has_backing, struct error *err);

/* Frees everything that the memory owns except for the struct itself. */
void front_memory_let_go(struct front_memory *memory);

/* ---- front_memory.c: as engine_map and its kin -------------------------------------------------------- */

/* Returns the child to use, with a reference for the caller. Returns NULL, with the error DEVICE_LOST, if
 * there is none at the moment. */
struct child *front_child(struct front *front, struct error *err);

int front_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
              struct error *err);
int front_make(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
               struct engine_export *ret_export, struct error *err);
int front_settle(struct engine *engine, struct engine_memory *memory, const atomic_bool *unwanted,
                 struct error *err);
bool front_unmap(struct engine *engine, struct engine_memory *memory);
void front_link(struct engine *engine, const char *uuid, struct engine_link *ret);

/* Sets *ret to the number of a memory, WIRE_NONE for NULL. Returns whether the child has mapped the memory;
 * true if memory or child is NULL. */
bool front_memory_number(const struct child *child, const struct engine_memory *memory, uint32_t *ret);

/* Notes that the memory with this number has lost pages that the device had pinned, because its file no
 * longer has them. */
void front_memory_lose_pins(struct front *front, uint32_t number);

/* Maps all memory again in a new child. Only for the front's own thread. Sets *ret_dropped to the number of
 * memories that could not be mapped. Returns 0, or DEVICE_LOST if the child has ended or hangs; a memory
 * whose mapping hung counts as dropped. */
int front_map_anew(struct front *front, struct child *child, uint32_t *ret_dropped, struct error *err);

#endif
