/* SPDX-License-Identifier: Apache-2.0 */
/* A load: connections that each keep a number of requests in flight, on one thread, until enough have been
 * answered, the time is over, or the user stops it. */
#ifndef CLIENT_TMACTL_BENCH_LOAD_H
#define CLIENT_TMACTL_BENCH_LOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"
#include "client/tmactl/transform_request.h"
#include "client/tmactl/tmactl.h"

#define LOAD_STATUSES 32 /* -status of every TMA_* is below */

struct load_result;

struct load {
	uint32_t connections;
	uint32_t depth;    /* requests under way on each */
	uint64_t requests; /* in all; UINT64_MAX: as many as there is time for */
	uint64_t duration_ns;
	const struct transform_request *request; /* on regions of the connection's own; NULL: ping */
	const struct tma_order *order;           /* of these requests; NULL: none */
	const char *dst_device; /* whose memory the destination is, by UUID or number; NULL: host memory */
	const char *src_device; /* likewise */
	bool is_prepared;       /* as runs of a plan */
	const volatile sig_atomic_t *stop;
	/* Now and then, with what has been measured until then and how much of the run that is, 0 to 1; NULL:
	 * nobody looks. */
	void (*progress)(void *arg, const struct load_result *result, double done);
	void *progress_arg;
};

struct load_result {
	uint64_t submitted;
	uint64_t failed[LOAD_STATUSES]; /* answered with an error, by -status */
	uint64_t reconnects; /* times that the service came back, however many connections it was gone from */
	uint64_t
	    unanswered;     /* that were under way when the service went away; asked anew, and counted once */
	uint64_t bytes;     /* read plus written by transforms that went well */
	uint64_t engine_ns; /* the engine's own time for them */
	uint64_t ns;        /* from the first request to the last answer */
	struct histogram latency; /* of the answered, ns: from before a request is made to its answer read */
	char path[24];            /* the family that moved the last one; "": none */
};

/* t says where to connect, and how long a service that goes away is waited for. Once requests are sent a
 * failure leaves what was measured until then in ret, whose connections are closed in any case. */
int load_run(const struct load *load, const struct tmactl *t, struct load_result *ret, struct failure *f);

#endif
