/* SPDX-License-Identifier: Apache-2.0 */
/* What the mover and its workers share. For mover.c and mover_worker.c only. */
#ifndef CLIENT_TMACTL_COPY_MOVER_WORKER_H
#define CLIENT_TMACTL_COPY_MOVER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/tmactl/lives.h"
#include "mover.h"

#define MAX_WORKERS 3

struct worker {
	struct mover *mover;
	pthread_t thread;
	tma_client *client;
	int hang_up; /* a second fd of the client's connection, to end the calls of its thread from another;
	                -1 until there is one; under the mover's lock */
	tma_region *src;
	tma_region *dst;
	tma_region *operands; /* lists by which elements are converted; NULL: there are none */
	tma_region *scales;   /* that are computed; NULL: there are none */
	uint32_t life;        /* of the service, that the client is connected to (lives.h) */
	struct failure error;
};

struct mover {
	const struct tmactl *t;
	const struct mover_job *job;
	struct box_plan plan;
	struct worker workers[MAX_WORKERS];
	int n_workers;
	atomic_bool was_served; /* by a tmad that may come back */
	pthread_mutex_t
	    reading; /* of a source that is read in order: held from the choice of a box to its last byte */
	pthread_mutex_t writing; /* a file takes one writer at a time, and the others would spin for it */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t ended;
	struct lives lives;
	uint64_t next_box;
	uint64_t n_written;     /* boxes, of an output that is written in order */
	pthread_cond_t written; /* one more is */
	uint64_t done_bytes;    /* of the output */
	uint64_t largest_bytes; /* of the box that result.path is from */
	int n_moving;           /* boxes that are with the service, since moving_ns */
	uint64_t moving_ns;
	int running;
	struct failure error;
	struct mover_result result;
};

/* Whether an output's bytes go out as they come, in order. */
static inline bool is_sent(const struct output *output)
{
	return output->is_stream && output->fd < 0;
}

/* A worker's thread; arg is its struct. */
void *worker_main(void *arg);

#endif
