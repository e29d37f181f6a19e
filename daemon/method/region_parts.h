/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a region_register: descriptors that came with the request, and regions of the connection, from
 * the request until its memory is mapped.
 *
 * Both are held meanwhile: the descriptors and the list are charged, and a region that is released stays
 * until then.
 */
#ifndef DAEMON_METHOD_REGION_PARTS_H
#define DAEMON_METHOD_REGION_PARTS_H

#include <stdint.h>

#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"

struct region;
struct session;

/* Zero-initialised: there are none. */
struct region_parts {
	uint32_t n;
	struct engine_part *list;
	struct region **regions; /* of each part; NULL: it has a descriptor */
	uint64_t bytes;          /* in all of them */
	struct charge fds;
	struct charge list_bytes;
};

/* What the request names, or an error that names the part. Either way the session no longer has the request's
 * descriptors. The request must be decoded still. */
int region_parts_init(struct region_parts *parts, struct session *session,
                      const struct msg_region_register *request, struct error *err);

/* How many allocations they are. */
uint64_t region_parts_count(const struct region_parts *parts);

/* Drops the descriptors of a request that is refused for something else. */
void region_parts_drop_fds(struct session *session, const struct message_list *list);

/* Closes the descriptors off the loop and lets the regions go. */
void region_parts_deinit(struct region_parts *parts, struct session *session);

#endif
