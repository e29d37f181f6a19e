/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a request: when it starts, what it signals at its end, when it is answered, and what it passes
 * and takes meanwhile. These are the fields wait, signal, reply, priority, multiprocessors and host_threads
 * of every method that moves something. */
#ifndef DAEMON_METHOD_ORDER_H
#define DAEMON_METHOD_ORDER_H

#include <stdint.h>

#include "proto/schema.h"
#include "proto/status.h"

struct region;
struct session;

struct order {
	struct region *wait; /* NULL: it does not wait */
	uint64_t wait_offset;
	uint64_t wait_value;
	uint64_t wait_ms;
	struct region *signal; /* NULL: no signal */
	uint64_t signal_offset;
	uint64_t signal_value;
	enum completion completion;
	enum job_priority priority;
	uint32_t multiprocessors; /* within the user's limit; 0: there is none */
	uint32_t host_threads;
};

/* What a request asks for, within the limit: the lesser of the two, where 0 stands for no limit. */
static inline uint32_t order_within(uint64_t asked, uint64_t limit)
{
	const uint64_t least = asked && (!limit || asked < limit) ? asked : limit;

	return least < UINT32_MAX ? (uint32_t)least : UINT32_MAX;
}

/* Sets how an order is to be run, within the limits of the session's user. */
void order_set_share(struct session *session, enum job_priority priority, uint64_t multiprocessors,
                     uint64_t host_threads, struct order *ret);

/* wait and signal may be NULL. Refuses regions that do not belong to the connection or are not writable,
 * words that are misaligned or lie outside the region, and deadlines beyond wait_deadline_ms. */
int order_check(struct session *session, const struct msg_wait *wait, const struct msg_signal *signal,
                enum completion completion, struct order *ret, struct error *err);

/* The same for a message m with the parameters p. */
#define order_of(session, m, p, ret, err)                                                 \
	(order_check(session, (p)->has & F(m, wait) ? &(p)->wait : NULL,                  \
	             (p)->has & F(m, signal) ? &(p)->signal : NULL, (p)->reply, ret, err) \
	     ?: (order_set_share(session, (p)->priority, (p)->multiprocessors, (p)->host_threads, ret), 0))

#endif
