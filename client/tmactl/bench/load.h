/* SPDX-License-Identifier: Apache-2.0 */
/* A load on the service: one thread drives a number of connections, each of which keeps a number of requests
 * in flight, until enough have been answered, the time is over, or the user stops the run. */
#ifndef CLIENT_TMACTL_BENCH_LOAD_H
#define CLIENT_TMACTL_BENCH_LOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"
#include "client/tmactl/transform_request.h"
#include "client/tmactl/tmactl.h"

#define LOAD_STATUSES 32 /* exceeds -status of every TMA_* */

struct load_result;

/* The load to run. The caller fills it and keeps it unchanged during the run. */
struct load {
	uint32_t connections;
	uint32_t depth;    /* requests in flight on each connection */
	uint64_t requests; /* requests over all connections; UINT64_MAX: no limit */
	uint64_t duration_ns;
	const struct transform_request *request; /* each connection has regions of its own; NULL: ping */
	const struct tma_order *order;           /* priority and limits of requests; NULL: the defaults */
	const char *dst_device; /* device that holds the destination, by UUID or number; NULL: host memory */
	const char *src_device; /* device that holds the source, in the same form */
	bool is_prepared;       /* each connection prepares a plan once, and requests run it */
	const volatile sig_atomic_t *stop; /* a value other than 0, set by a signal handler, ends the run */
	/* Called about ten times a second with what was measured so far and the part of the run that is done,
	 * from 0 to 1. May be NULL. */
	void (*progress)(void *arg, const struct load_result *result, double done);
	void *progress_arg;
};

struct load_result {
	uint64_t submitted;             /* requests sent, without those that were lost and are sent again */
	uint64_t failed[LOAD_STATUSES]; /* requests answered with an error, by -status */
	uint64_t reconnects;      /* times that the service came back, counted once for all connections */
	uint64_t unanswered;      /* requests that were lost with a connection and were sent again */
	uint64_t bytes;           /* read plus written by transforms that succeeded */
	uint64_t engine_ns;       /* the engine's own time for these */
	uint64_t ns;              /* from the first request to the last answer */
	struct histogram latency; /* ns from before a request is made until its answer has been read */
	char path[24];            /* kernel family that moved the last transform; "": none */
};

/* Runs the load. t says where to connect and how long to wait for a service that goes away. If the run fails
 * after the first request, *ret holds what was measured until then. All connections are closed on return. */
int load_run(const struct load *load, const struct tmactl *t, struct load_result *ret, struct failure *f);

#endif
