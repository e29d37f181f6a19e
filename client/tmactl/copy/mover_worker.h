/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the mover shares with its workers. Only mover.c and mover_worker.c include this header. */
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
	/* A duplicate of the connection's descriptor, with which another thread can shut the connection down
	 * to end a call of this one; -1: there is none. Guarded by mover->lock. */
	int hang_up;
	tma_region *src;
	tma_region *dst;
	tma_region *operands; /* lists of scales and biases; NULL: there are none */
	tma_region *scales;   /* computed scales of one box; NULL: none are computed */
	uint32_t life;        /* life of the service that the client is connected to (lives.h) */
	struct failure error; /* why this worker stopped; only its own thread uses it */
};

struct mover {
	const struct tmactl *t;
	const struct mover_job *job;
	struct box_plan plan;
	struct worker workers[MAX_WORKERS];
	int n_workers;
	atomic_bool was_served; /* a worker has connected, so a service that is gone may come back */
	/* Held for a sequential source from the choice of a box until its last byte has been read. */
	pthread_mutex_t reading;
	/* Held while a box is written. A file accepts one writer at a time, and the others would spin. */
	pthread_mutex_t writing;

	pthread_mutex_t lock; /* guards all members below, and hang_up of the workers */
	pthread_cond_t ended; /* signalled when a worker has ended */
	struct lives lives;
	uint64_t next_box;      /* index of the next box that a worker takes */
	uint64_t n_written;     /* boxes written; a streamed output takes box n_written next */
	pthread_cond_t written; /* broadcast when n_written has grown or the job stops */
	uint64_t done_bytes;    /* bytes of output that are written */
	uint64_t largest_bytes; /* bytes of the largest box, from which result.path is */
	int n_moving;           /* boxes that are with the service */
	uint64_t moving_ns;     /* when n_moving last left 0, by clock_ns() */
	int running;            /* workers that have not ended */
	struct failure error;   /* failure of the first worker that failed */
	struct mover_result result;
};

/* Returns whether an output is a pipe that is not spooled, whose bytes have to be written in order. */
static inline bool is_sent(const struct output *output)
{
	return output->is_stream && output->fd < 0;
}

/* The start routine of a worker's thread. arg is its struct worker. */
void *worker_main(void *arg);

#endif
