/* SPDX-License-Identifier: Apache-2.0 */
/* A batch holds the items of a submit request, each with its plans and places or with the reason why it was
 * refused. Or it holds the parts of one transform as a single item, or the pieces of a reshard as one item
 * each.
 *
 * A batch holds references to the plans and regions of its items until it is freed. The service keeps one
 * freed batch, with its memory, for reuse.
 */
#ifndef DAEMON_JOBS_BATCH_H
#define DAEMON_JOBS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "proto/wire/frame.h"
#include "placed.h"

struct batch;
struct blocks_job;
struct job;
struct service;
struct spread;
struct table;

struct batch_item {
	uint32_t device; /* device that the item runs on */
	/* It belongs to the same item of the request as the one before it, but runs on another device. */
	bool continues;
	/* Number of moves: one for each of its parts, or for each entry of its tables that runs on the
	 * device. 0: the item was refused. */
	uint32_t n_moves;
	uint32_t largest; /* index of the largest among its moves */
	struct region *dst;
	struct region *src;
	struct region *operand[ROLE_COUNT]; /* NULL: none */
	struct table *dst_table;            /* NULL: none */
	struct table *src_table;
	/* Offset of its error message in batch->sentences, if it was refused or its exact cast has changed
	 * values. SIZE_MAX: the message was not kept. */
	size_t sentence;
};

struct batch {
	struct service *service;
	uint32_t room; /* number of items for which there is memory */
	uint32_t n;
	/* Number of items that the request has. Items that continue another one are not counted. */
	uint32_t n_asked;
	uint32_t n_good; /* those of n_asked that were not refused */
	struct batch_item *items;
	/* Indexed by item, and set only for refused items, until batch_result fills in one status for each
	 * item of the request. */
	int32_t *statuses;
	uint32_t moves_room;
	uint32_t n_moves;          /* moves of all items, in the order of the items */
	struct engine_move *moves; /* each holds a reference to its plan */
	struct buffer sentences;   /* error messages of items, each with a NUL at its end */
	uint64_t errors_bytes;     /* maximum number of bytes that errors may take in the reply */
};

/* Returns an empty batch with room for n items, or NULL if out of memory. The caller frees it with
 * batch_free. */
struct batch *batch_new(struct service *service, uint32_t n);
void batch_free(struct batch *batch); /* NULL is allowed. */

/* Frees the batch that is kept for reuse. */
void batch_free_kept(struct service *service);

/* Adds an item that runs. Takes over the caller's references to plans, also on failure. Returns 0 or
 * NO_MEMORY. */
int batch_add(struct batch *batch, struct parts *parts, struct error *err);

/* Adds a run over the list's tables as one item, with a move for each entry. Without src_table, all entries
 * have the source of list->placed. Entries that run on further devices (blocks_job_device) become items that
 * continue the first. Returns 0 or NO_MEMORY. */
int batch_add_tables(struct batch *batch, const struct blocks_job *list, struct error *err);

/* Adds an item that is refused because of the error. */
void batch_refuse(struct batch *batch, const struct error *error);

/* Returns the bytes of the item's moves that have not failed, and sets *ret to the family of its largest
 * move. moves points to the item's first move. */
uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret);

/* Sets *err to OUT_OF_RANGE for n moves whose exact casts have changed values; the message says how many
 * values they have changed in all. */
void batch_explain_cast(const struct engine_move *moves, uint32_t n, struct error *err);

/* Returns the status of the first of the item's moves that failed, or 0. moves points to the item's first
 * move. */
int batch_item_status(const struct batch_item *item, const struct engine_move *moves);

/* Sets *ret, except ret->ns, to the result of the batch, whose moves must have ended. Returns the number of
 * items that failed. The caller frees ret->errors.items; the rest belongs to the batch. */
uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret);

/* A spread divides a request whose moves run on several devices into steps. Each step is a job for the engine
 * of one device. It starts at once, or when the step that it comes after has ended.
 *
 * Steps that start at once first wait for the point that the request waits for. If the request has a signal
 * and nothing failed, the request's own job goes to the engine of its device after the last step, only to set
 * the signal. Steps that come after others are not started any more once a step has failed as a whole or the
 * memory of one of its moves has failed; an inexact cast does not stop them. No other job of the session is
 * under way meanwhile.
 */

/* Divides the batch, which belongs to the job, into one step for each device; all steps start at once. The
 * caller frees *ret. Returns 0, NO_MEMORY, or what region_reach does for the word that the job waits for. */
int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err);

#define SPREAD_AT_ONCE UINT32_MAX

/* Does the same with one step for each item, none of which may have been refused. Step i comes after step
 * after[i] < i, or starts at once if after[i] is SPREAD_AT_ONCE. */
int spread_new_tree(struct job *job, struct batch *batch, const uint32_t *after, struct spread **ret,
                    struct error *err);

/* NULL is allowed. */
void spread_free(struct spread *spread);

/* Submits the steps that start at once. The job's on_done is called when the last step and the signal are
 * done. */
void spread_submit(struct spread *spread);

/* Cancels the request if none of its steps has begun, and returns whether it did. Engines are asked one after
 * the other; if one of them refuses, the steps that others have already canceled are submitted again. */
bool spread_cancel(struct spread *spread);

/* Starts no further step. The job ends when the steps that are under way have ended; its status is CANCELED
 * if any step was left. */
void spread_stop(struct spread *spread);

#endif
