/* SPDX-License-Identifier: Apache-2.0 */
/* A batch has the items of a submit request, each with its plans and places or with the reason why it was
 * refused; or it has the parts of one transform, as a single item.
 *
 * It holds the plans and regions of its items until it is freed. The service keeps one batch with its memory
 * for reuse.
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
	uint32_t device;  /* the device that the item runs on */
	bool continues;   /* it continues the item before it, on another device */
	uint32_t n_moves; /* its parts, or one for each entry of its tables; 0: it was refused */
	uint32_t largest; /* index of the largest move */
	struct region *dst;
	struct region *src;
	struct region *operand[ROLE_COUNT]; /* NULL: none */
	struct table *dst_table;            /* NULL: none */
	struct table *src_table;
	size_t sentence; /* where its sentence starts, if it was refused or its cast is not exact */
};

struct batch {
	struct service *service;
	uint32_t room; /* items for which there is memory */
	uint32_t n;
	uint32_t n_asked; /* items of the request, without those that continue one */
	uint32_t n_good;  /* the same, without those that were refused */
	struct batch_item *items;
	int32_t *statuses;
	uint32_t moves_room;
	uint32_t n_moves;          /* moves of all items, in the order of the items */
	struct engine_move *moves; /* Each holds a reference to its plan. */
	struct buffer sentences;   /* each ends with a NUL */
	uint64_t errors_bytes;     /* bytes left for errors in the reply */
};

/* Returns an empty batch with room for n items, or NULL if out of memory. */
struct batch *batch_new(struct service *service, uint32_t n);
void batch_free(struct batch *batch); /* NULL is allowed */

/* Frees the batch that is kept for reuse. */
void batch_free_kept(struct service *service);

/* Adds an item that runs. Takes over the caller's references to plans, also on failure. Returns 0 or
 * NO_MEMORY. */
int batch_add(struct batch *batch, struct parts *parts, struct error *err);

/* Adds an item that runs once for each entry of the list's tables (without src_table all entries have the
 * place of placed), on the device that the list says; entries on further devices become items that continue
 * it. Returns 0 or NO_MEMORY. */
int batch_add_tables(struct batch *batch, const struct blocks_job *list, struct error *err);

/* Adds an item that is refused. */
void batch_refuse(struct batch *batch, const struct error *error);

/* Returns the bytes of those of an item's moves that have not failed, and sets *ret to the family of its
 * largest part. */
uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret);

/* Sets the error of an item with n moves whose exact casts have changed values: it says how many values of
 * all. */
void batch_explain_cast(const struct engine_move *moves, uint32_t n, struct error *err);

/* Returns 0, or the status of the first of the item's moves that failed. */
int batch_item_status(const struct batch_item *item, const struct engine_move *moves);

/* Sets the result of the items, except its ns, once their moves have ended. Returns how many statuses are not
 * 0. The caller frees ret->errors.items; the rest belongs to the batch. */
uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret);

/* A request whose moves run on several devices is divided into steps. Each is a job for the engine of its
 * device, and starts when the step that it comes after has ended; one that comes after none starts at once.
 *
 * The steps that start at once wait for what the request waits for. When the last step has ended, the
 * request's job goes to the engine of its device for its signal alone, if it has one and nothing failed. A
 * step that fails as a whole, or whose memory fails, keeps those after it from starting; an inexact cast does
 * not. Nothing else of the session is under way meanwhile.
 */

/* Divides the items of a batch, which belong to the job, into a step for each device, all of which start at
 * once. The caller frees *ret. Returns 0, NO_MEMORY, or what region_reach does for the word that the job
 * waits for. */
int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err);

#define SPREAD_AT_ONCE UINT32_MAX

/* Does the same with a step for each item, which has moves. Item i comes after item after[i] < i, or starts
 * at once if that is SPREAD_AT_ONCE. */
int spread_new_tree(struct job *job, struct batch *batch, const uint32_t *after, struct spread **ret,
                    struct error *err);

/* NULL is allowed. */
void spread_free(struct spread *spread);

/* Gives the first steps to their engines. The job's on_done is called when it has ended as a whole. */
void spread_submit(struct spread *spread);

/* Cancels all of it if no step has begun, and returns whether it did. Engines are asked one after the other:
 * what one has canceled is given to it again if another one has begun. */
bool spread_cancel(struct spread *spread);

/* Starts no further step. The job ends once the steps that are under way have ended, as CANCELED if any was
 * left. */
void spread_stop(struct spread *spread);

#endif
