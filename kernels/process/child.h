/* SPDX-License-Identifier: Apache-2.0 */
/* A child, which is the process that runs an engine, as its front sees it: the process itself, the memory
 * that both share, and the sockets for calls.
 *
 * A child is reference-counted: the thread that watches it, the owner's thread and calls under way hold
 * references. A child that has ended does not come back; another one takes its place.
 */
#ifndef KERNELS_PROCESS_CHILD_H
#define KERNELS_PROCESS_CHILD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "shared.h"

struct child {
	atomic_uint refs;
	uint64_t life; /* number of this child; a front counts its children from 1 */
	pid_t pid;
	bool is_running; /* The process has not been waited for. */
	int pidfd;
	int control; /* socket for the hello and its answer, and for passing the sockets for calls */
	struct shared *shared;
	struct ring to_child, to_front;

	/* The sockets for calls, by their index in shared->unwanted; -1: not open. When no call is under way,
	 * one socket stays open. The lock guards these fields. */
	pthread_mutex_t lock;
	pthread_cond_t is_free;
	int socket[SHARED_CALLS];
	bool is_used[SHARED_CALLS];
};

/* Starts the process and sends it the hello. Sets *ret to the child, with a reference for the caller. life
 * becomes the field of that name. doorbell is the eventfd to which the child writes if the front sleeps when
 * the child has put something into its ring or made room in the front's. Returns 0 or NO_MEMORY. */
int child_start(struct child **ret, uint64_t life, const struct wire_hello *hello, int doorbell,
                struct error *err);

/* Waits for the child's answer to the hello, for at most ms milliseconds. Returns 0, the child's error,
 * DEVICE_LOST if the child has ended or has not answered in time, or CANCELED if the descriptor `stop` has
 * become readable because nobody waits any longer. */
int child_await(struct child *child, int ms, int stop, struct wire_ready *ret, struct error *err);

/* child_do makes a call, and may be called from any thread. Sets *ret to the answer. If ret_fd is not NULL,
 * sets *ret_fd to the descriptor that came with it, which the caller owns, or to -1. Returns the child's
 * answer, or DEVICE_LOST if the child has ended. */
struct child_call {
	struct wire_call call;
	int fd;
	const struct wire_part *parts;
	const int *fds;                   /* descriptors of those parts that have one, in order */
	const struct wire_layout *layout; /* for WIRE_EXPLAIN; otherwise NULL, as is explanation */
	struct engine_explanation *explanation;
	/* The call's result is no longer wanted once this is set; NULL: it is always wanted. */
	const atomic_bool *unwanted;

	/* Called again and again during the call. If it returns false, the call is given up as if the child
	 * had ended. NULL: the call is never given up. */
	bool (*may_wait)(void *arg);
	void *arg;
};
int child_do(struct child *child, struct child_call *call, struct wire_answer *ret, int *ret_fd,
             struct error *err);

/* Asks the child to close its engine and to end. */
void child_close(struct child *child);

/* Waits until the process has ended, for at most ms milliseconds, or without limit if ms is -1. Returns
 * whether it has ended; if so it has been reaped, and *ret_status is set as by waitpid unless it had been
 * reaped before. ret_status may be NULL. */
bool child_wait(struct child *child, int ms, int *ret_status);

/* Kills the process. Any thread that has a reference may call this. */
void child_kill(struct child *child);

/* Makes calls under way, and later ones, end as if the child had ended. A killed process that is in the
 * middle of a system call may take long to end. */
void child_cut(struct child *child);

static inline struct child *child_ref(struct child *child)
{
	atomic_fetch_add(&child->refs, 1);
	return child;
}

/* Drops a reference; NULL is allowed. The process must have been waited for before the last reference is
 * dropped. */
void child_unref(struct child *child);

#endif
