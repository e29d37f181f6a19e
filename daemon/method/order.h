/* When a request starts, what it sets at its end, and when it is answered: the fields wait, signal and reply
 * that every method that moves something has. */
#ifndef DAEMON_METHOD_ORDER_H
#define DAEMON_METHOD_ORDER_H

#include <stdint.h>

#include "proto/schema.h"
#include "proto/status.h"

struct region;
struct session;

struct order {
	struct region *wait; /* NULL: it waits for nothing */
	uint64_t wait_offset;
	uint64_t wait_value;
	uint64_t wait_ms;
	struct region *signal; /* NULL: it sets nothing */
	uint64_t signal_offset;
	uint64_t signal_value;
	enum completion completion;
};

/* wait and signal may be NULL. Refused are regions that are not the connection's or not writable, words that
 * leave them or are not aligned, and deadlines past wait_deadline_ms. */
int order_check(struct session *session, const struct msg_wait *wait, const struct msg_signal *signal,
                enum completion completion, struct order *ret, struct error *err);

/* The same of a message m whose params are p. */
#define order_of(session, m, p, ret, err)                              \
	order_check(session, (p)->has &F(m, wait) ? &(p)->wait : NULL, \
	            (p)->has &F(m, signal) ? &(p)->signal : NULL, (p)->reply, ret, err)

#endif
