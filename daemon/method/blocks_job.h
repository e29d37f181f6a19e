/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a gather or scatter request, or of a run over tables, checked and turned into a list of
 * blocks for the engine. */
#ifndef DAEMON_METHOD_BLOCKS_JOB_H
#define DAEMON_METHOD_BLOCKS_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engines.h"
#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "transforms.h"

struct job;
struct order;
struct rpc_request;
struct session;
struct table;

/* Lives as long as its job, with copies of what came in the message. */
struct blocks_job {
	struct engine_blocks blocks;
	struct placed placed;
	struct charge charge;                   /* list_bytes_per_uid, for what came in the message */
	struct table *dst_table, *src_table;    /* NULL: the side lies in one region */
	bool is_spread;                         /* of a run over tables: its entries run on several devices */
	struct engine_plan *plan[ENGINES_MOST]; /* a reference for each device; NULL if nothing runs there */
	struct region *index;                   /* NULL: the entries came in the message */
	uint64_t n;      /* entries; 0: nothing to move, and the engine gets one entry of -1 */
	int64_t *sorted; /* room for as many offsets as dst has layers */
	int64_t words[]; /* offsets of layers, room to sort them, entries */
};

/* Checks all fields of a request except its order, and finds its plan. Returns 0 or an error; the caller
 * frees *ret. */
int blocks_job_new(struct session *session, const struct msg_blocks *params, bool scatter,
                   struct blocks_job **ret, struct error *err);

/* The same for a run of a plan over tables (blocks_run.c): a list of one block, in as many layers as the
 * tables have entries. */
int blocks_job_of_run(struct session *session, const struct msg_plan_run *params, uint32_t device,
                      struct blocks_job **ret, struct error *err);

/* The device that entry i of the tables runs on, and where it lies. */
uint32_t blocks_job_device(const struct blocks_job *list, uint32_t i);
void blocks_job_place(const struct blocks_job *list, uint32_t i, struct placed *ret);

/* All that entries run on, that of the first first; returns how many. */
uint32_t blocks_job_devices(const struct blocks_job *list, uint32_t ret[ENGINES_MOST]);

/* Returns the places on which the plan may rely, which are those of all blocks. */
struct plan_places blocks_job_places(const struct blocks_job *list);

/* As placed_settle, with all entries of the tables; the list then has its tables' layers. */
int blocks_job_settle(struct blocks_job *list, uint32_t device, struct error *err);

/* Queues the list for the request. answer replies to it and finds the list in the job's `own`. The call takes
 * over the list, also on failure. Returns 0, QUOTA or NO_MEMORY. */
int blocks_job_start(struct session *session, const struct rpc_request *request, const struct order *order,
                     struct blocks_job *list, void (*answer)(struct job *job), struct error *err);

/* A list without entries, or of blocks without elements, still goes to the engine: it keeps its place in the
 * stream and sets its signal. */
void blocks_job_move_nothing(struct blocks_job *list);

void blocks_job_free(struct blocks_job *list);

#endif
