/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a request: when it starts, what it signals at its end, and when it is answered. These are the
 * fields wait, signal and reply of every method that moves something. */
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
};

/* wait and signal may be NULL. Refuses regions that do not belong to the connection or are not writable,
 * words that are misaligned or lie outside the region, and deadlines beyond wait_deadline_ms. */
int order_check(struct session *session, const struct msg_wait *wait, const struct msg_signal *signal,
                enum completion completion, struct order *ret, struct error *err);

/* The same for a message m with the parameters p. */
#define order_of(session, m, p, ret, err)                              \
	order_check(session, (p)->has &F(m, wait) ? &(p)->wait : NULL, \
	            (p)->has &F(m, signal) ? &(p)->signal : NULL, (p)->reply, ret, err)

#endif
