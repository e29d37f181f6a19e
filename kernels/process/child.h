/* SPDX-License-Identifier: Apache-2.0 */
/* A child as the front sees it: the process, the memory that both share, and the sockets for calls.
 *
 * It is counted: the thread that watches it, the owner and calls under way have it. It is not one that comes
 * back; after its end there is another one.
 */
#ifndef KERNELS_PROCESS_CHILD_H
#define KERNELS_PROCESS_CHILD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "shared.h"
#include "wire.h"

struct child {
	atomic_uint refs;
	uint64_t life; /* its number, from 1 */
	pid_t pid;
	bool is_running; /* it has not been waited for */
	int pidfd;
	int control;
	struct shared *shared;
	struct ring to_child, to_front;

	/* Sockets for calls, by their place in shared->unwanted; -1: none is open. One stays open while there
	 * is no call. */
	pthread_mutex_t lock;
	pthread_cond_t is_free;
	int socket[SHARED_CALLS];
	bool is_used[SHARED_CALLS];
};

/* Starts the process and says hello; the caller has a reference. doorbell: an eventfd, which the child writes
 * when something has come back for a front that sleeps. */
int child_start(struct child **ret, uint64_t life, const struct wire_hello *hello, int doorbell,
                struct error *err);

/* Waits for its answer, for so many ms (DEVICE_LOST: it has ended, or hangs); stop: a descriptor that is
 * readable when nobody waits any longer (CANCELED). */
int child_await(struct child *child, int ms, int stop, struct wire_ready *ret, struct error *err);

/* A call, from any thread. fd: -1: none; n_parts parts with descriptors in their order. *ret_fd is the
 * caller's, or -1. DEVICE_LOST: the child has ended; else what it answers. */
struct child_call {
	struct wire_call call;
	int fd;
	const struct wire_part *parts;
	const int *fds;                   /* of the parts that have one */
	const struct wire_layout *layout; /* to explain; else NULL, as is the next */
	struct engine_explanation *explanation;
	const atomic_bool *unwanted; /* NULL: never */

	/* Asked all the while; false: the call is given up, as if the child had ended. NULL: never. */
	bool (*may_wait)(void *arg);
	void *arg;
};
int child_do(struct child *child, struct child_call *call, struct wire_answer *ret, int *ret_fd,
             struct error *err);

/* Asks it to close its engine and to end. */
void child_close(struct child *child);

/* Whether it has ended within so many ms, and has been waited for; -1: however long that takes. What it ended
 * with is then in *ret_status, as waitpid has it. */
bool child_wait(struct child *child, int ms, int *ret_status);

/* From any thread that has it. */
void child_kill(struct child *child);

/* Calls under way, and later ones, end as if it had ended: a process that was killed while it is in the
 * middle of a call of the kernel's may take its time. */
void child_cut(struct child *child);

static inline struct child *child_ref(struct child *child)
{
	atomic_fetch_add(&child->refs, 1);
	return child;
}

/* NULL is allowed. The process has been waited for before the last. */
void child_unref(struct child *child);

#endif
