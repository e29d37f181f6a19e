/* SPDX-License-Identifier: Apache-2.0 */
/* A batch: the items of a submit request, each with its plan and places, or with the reason why it was
 * refused.
 *
 * It holds the plans and regions of its items until it is freed. It is one allocation, of which the server
 * keeps one for reuse.
 */
#ifndef DAEMON_RESOURCE_BATCH_H
#define DAEMON_RESOURCE_BATCH_H

#include <stdint.h>

#include "kernels/engine.h"
#include "proto/wire/buffer.h"
#include "proto/schema.h"
#include "daemon/method/transforms.h"

struct plan_entry;
struct server;

struct batch_item {
	struct plan_entry *plan; /* NULL: it was refused */
	struct region *dst;
	struct region *src;
	size_t sentence; /* of a refused item: where its sentence starts */
};

struct batch {
	struct server *server;
	uint32_t room; /* in items */
	uint32_t n;
	uint32_t n_moves; /* of items that were not refused, in their order */
	struct batch_item *items;
	struct engine_move *moves;
	int32_t *statuses;
	struct buffer sentences; /* each ends with a NUL */
	uint64_t errors_bytes;   /* left for errors in the reply */
};

/* Returns an empty batch with room for n items; NULL: out of memory. */
struct batch *batch_new(struct server *server, uint32_t n);
void batch_free(struct batch *batch);

/* Frees the batch that is kept for reuse. */
void batch_free_kept(struct server *server);

/* Adds an item that runs; takes over the caller's reference to plan. */
void batch_add(struct batch *batch, struct plan_entry *plan, const struct placed *placed);

/* Adds an item that is refused. */
void batch_refuse(struct batch *batch, const struct error *error);

/* The result of the items, when their moves have ended, without ns; returns how many statuses are not 0. The
 * caller frees ret->errors.items; the rest belongs to the batch. */
uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret);

#endif
