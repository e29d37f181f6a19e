/* A batch: the items of a submit, each with its plan and its places or the reason why it was refused.
 *
 * It holds the plans and regions of its items until it is freed. All of it is one piece of memory, of which
 * the server keeps one for reuse.
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
	size_t sentence; /* of a refused one: where in sentences it starts */
};

struct batch {
	struct server *server;
	uint32_t room; /* for items */
	uint32_t n;
	uint32_t n_moves; /* of the items that were not refused, in their order */
	struct batch_item *items;
	struct engine_move *moves;
	int32_t *statuses;
	struct buffer sentences; /* each ends with a NUL */
	uint64_t errors_bytes;   /* that errors may still take in the reply */
};

/* For n items, none of them there yet; NULL: out of memory. */
struct batch *batch_new(struct server *server, uint32_t n);
void batch_free(struct batch *batch);

/* Frees what is kept for reuse. */
void batch_free_kept(struct server *server);

/* The next item runs; takes over the caller's reference on plan. */
void batch_add(struct batch *batch, struct plan_entry *plan, const struct placed *placed);

/* The next item does not. */
void batch_refuse(struct batch *batch, const struct error *error);

/* What became of the items, when their moves have ended, without ns; how many statuses are not 0.
 * ret->errors.items is to be freed, all else is the batch's. */
uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret);

#endif
