/* SPDX-License-Identifier: Apache-2.0 */
/* A batch: the items of a submit request, each with its plans and places, or with the reason why it was
 * refused; or the parts of one transform, as a single item.
 *
 * It holds the plans and regions of its items until it is freed. The server keeps one batch with its memory
 * for reuse.
 */
#ifndef DAEMON_RESOURCE_BATCH_H
#define DAEMON_RESOURCE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "proto/wire/buffer.h"
#include "proto/schema.h"
#include "daemon/method/transforms.h"

struct blocks_job;
struct server;
struct table;

struct batch_item {
	uint32_t device;  /* that it runs on */
	bool continues;   /* it is what another device has of the request's item before it */
	uint32_t n_moves; /* its parts, or one for each entry of its tables; 0: it was refused */
	uint32_t largest; /* of them */
	struct region *dst;
	struct region *src;
	struct region *scale, *bias; /* NULL: none, as the others */
	struct region *amax_scale, *amax_inverse;
	struct table *dst_table; /* NULL: none */
	struct table *src_table;
	size_t sentence; /* where its sentence starts, if it was refused or its cast is not exact */
};

struct batch {
	struct server *server;
	uint32_t room; /* in items */
	uint32_t n;
	uint32_t n_asked; /* items of the request: those that continue one are not counted, */
	uint32_t n_good;  /* nor those that were refused */
	struct batch_item *items;
	int32_t *statuses;
	uint32_t moves_room;
	uint32_t n_moves;          /* of these items, in their order */
	struct engine_move *moves; /* Each holds a reference to its plan. */
	struct buffer sentences;   /* each ends with a NUL */
	uint64_t errors_bytes;     /* left for errors in the reply */
};

/* Returns an empty batch with room for n items; NULL: out of memory. */
struct batch *batch_new(struct server *server, uint32_t n);
void batch_free(struct batch *batch); /* NULL is allowed */

/* Frees the batch that is kept for reuse. */
void batch_free_kept(struct server *server);

/* Adds an item that runs; takes over the caller's references to plans, also on failure. NO_MEMORY. */
int batch_add(struct batch *batch, struct parts *parts, struct error *err);

/* Adds an item that runs once for each entry of the list's tables (without src_table all entries have the
 * place of placed), on the device that the list says; entries on further devices become items that continue
 * it. Returns 0 or NO_MEMORY. */
int batch_add_tables(struct batch *batch, const struct blocks_job *list, struct error *err);

/* How many items from item i on are one of the request's; *ret_moves: their moves. */
uint32_t batch_asked(const struct batch *batch, uint32_t i, uint32_t *ret_moves);

/* Adds an item that is refused. */
void batch_refuse(struct batch *batch, const struct error *error);

/* Returns the bytes of those of an item's moves that have not failed, and sets *ret to the family of its
 * largest part. */
uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret);

/* The error of moves of one item whose exact casts have changed values: how many of all. */
void batch_explain_cast(const struct engine_move *moves, uint32_t n, struct error *err);

/* 0, or the status of the first of its moves that failed. */
int batch_item_status(const struct batch_item *item, const struct engine_move *moves);

/* The result of the items, when their moves have ended, without ns; returns how many statuses are not 0. The
 * caller frees ret->errors.items; the rest belongs to the batch. */
uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret);

#endif
