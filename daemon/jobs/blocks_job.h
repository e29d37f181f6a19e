/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a gather or scatter request, or of a run over tables, are checked here and turned into a list
 * of blocks for the engine. */
#ifndef DAEMON_JOBS_BLOCKS_JOB_H
#define DAEMON_JOBS_BLOCKS_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/account.h"
#include "daemon/memory/devices.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "placed.h"

struct job;
struct order;
struct rpc_request;
struct session;
struct table;

/* A blocks_job lives as long as its job, and holds copies of what came in the message. */
struct blocks_job {
	struct engine_blocks blocks;
	struct placed placed;
	struct charge charge;                   /* list_bytes_per_uid, for what came in the message */
	struct table *dst_table, *src_table;    /* NULL: the side lies in one region */
	bool is_spread;                         /* entries of a run over tables are on several devices */
	struct engine_plan *plan[ENGINES_MOST]; /* a reference for each device; NULL if nothing runs there */
	struct region *index;                   /* NULL: the entries came in the message */
	uint64_t n;      /* entries; if 0, nothing is moved, and the engine gets one entry of -1 */
	int64_t *sorted; /* room for as many offsets as dst has layers */
	int64_t words[]; /* offsets of layers, room to sort them, entries */
};

/* Checks all fields of a request except its order, and finds its plan. Returns 0 or an error. The caller
 * frees *ret. */
int blocks_job_new(struct session *session, const struct msg_blocks *params, bool scatter,
                   struct blocks_job **ret, struct error *err);

/* Does the same for a run of a plan over tables: a list of one block, in as many layers as the tables have
 * entries. */
int blocks_job_of_run(struct session *session, const struct msg_plan_run *params, uint32_t device,
                      struct blocks_job **ret, struct error *err);

/* blocks_job_device returns the device that entry i of the tables runs on, and blocks_job_place sets where
 * the entry lies. */
uint32_t blocks_job_device(const struct blocks_job *list, uint32_t i);
void blocks_job_place(const struct blocks_job *list, uint32_t i, struct placed *ret);

/* Sets the devices that entries run on, beginning with that of the first entry, and returns how many they
 * are. */
uint32_t blocks_job_devices(const struct blocks_job *list, uint32_t ret[ENGINES_MOST]);

/* Queues the list for the request. answer replies to it and finds the list in the job's `own`. The call takes
 * over the list, also on failure. Returns 0, QUOTA or NO_MEMORY. */
int blocks_job_start(struct session *session, const struct rpc_request *request, const struct order *order,
                     struct blocks_job *list, void (*answer)(struct job *job), struct error *err);

void blocks_job_free(struct blocks_job *list);

#endif
