/* SPDX-License-Identifier: Apache-2.0 */
/* A child is what the front knows of an engine's process: the process, the memory that both share, and the
 * sockets for calls.
 *
 * References to it are counted: the thread that watches it, the owner and calls under way have one each. A
 * child that has ended does not come back; another one takes its place.
 */
#ifndef KERNELS_PROCESS_CHILD_H
#define KERNELS_PROCESS_CHILD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "shared.h"

struct child {
	atomic_uint refs;
	uint64_t life; /* number of this child, from 1 */
	pid_t pid;
	bool is_running; /* it has not been waited for */
	int pidfd;
	int control;
	struct shared *shared;
	struct ring to_child, to_front;

	/* These are the sockets for calls, by their place in shared->unwanted; -1: none is open. One stays
	 * open while there is no call. */
	pthread_mutex_t lock;
	pthread_cond_t is_free;
	int socket[SHARED_CALLS];
	bool is_used[SHARED_CALLS];
};

/* Starts the process and sends hello. *ret has a reference for the caller. doorbell is an eventfd, to which
 * the child writes when something has come back for a front that sleeps. */
int child_start(struct child **ret, uint64_t life, const struct wire_hello *hello, int doorbell,
                struct error *err);

/* Waits for the child's answer to hello, for at most ms. Returns DEVICE_LOST if it has ended or hangs, or
 * CANCELED if the descriptor stop has become readable, because nobody waits any longer. */
int child_await(struct child *child, int ms, int stop, struct wire_ready *ret, struct error *err);

/* child_do makes a call, from any thread. fd is -1 if there is none; n_parts parts have descriptors in their
 * order. *ret_fd, which may be NULL if none is to come, is the caller's, or -1. Returns DEVICE_LOST if the
 * child has ended, else what it answers. */
struct child_call {
	struct wire_call call;
	int fd;
	const struct wire_part *parts;
	const int *fds;                   /* descriptors of the parts that have one */
	const struct wire_layout *layout; /* for WIRE_EXPLAIN; else NULL, as is the next */
	struct engine_explanation *explanation;
	const atomic_bool *unwanted; /* NULL: never */

	/* This is called all the while. If it returns false, the call is given up as if the child had ended.
	 * NULL: it never is. */
	bool (*may_wait)(void *arg);
	void *arg;
};
int child_do(struct child *child, struct child_call *call, struct wire_answer *ret, int *ret_fd,
             struct error *err);

/* Asks the child to close its engine and to end. */
void child_close(struct child *child);

/* Tells if the child has ended within ms, or ever if ms is -1, and has been waited for. *ret_status is then
 * its status, as waitpid sets it. */
bool child_wait(struct child *child, int ms, int *ret_status);

/* Kills the process. Any thread that has the child may call this. */
void child_kill(struct child *child);

/* Makes calls under way, and later ones, end as if the child had ended: a process that was killed in the
 * middle of a system call may take its time. */
void child_cut(struct child *child);

static inline struct child *child_ref(struct child *child)
{
	atomic_fetch_add(&child->refs, 1);
	return child;
}

/* NULL is allowed. The process must have been waited for before the last reference goes. */
void child_unref(struct child *child);

#endif
