/* SPDX-License-Identifier: Apache-2.0 */
/* A gather or scatter request, or a run of a plan over tables, is checked here and turned into a list of
 * blocks for the engine. */
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
	struct charge charge;                /* for what came in the message (list_bytes_per_uid) */
	struct table *dst_table, *src_table; /* references; NULL: the side lies in one region */
	bool is_spread; /* it is a run over tables whose entries run on several devices */
	struct engine_plan *plan[ENGINES_MOST]; /* references, by device; NULL: nothing runs there */
	struct region *index; /* region that holds the entries; NULL: they came in the message */
	/* Number of entries of the request. 0: nothing is moved, and the engine gets a list with one entry of
	 * -1. */
	uint64_t n;
	int64_t *sorted; /* scratch space for the checks: one offset for each layer of dst */
	int64_t words[]; /* offsets of layers, then `sorted`, then entries */
};

/* Checks all fields of a request except its order, and finds its plan. Returns 0 or an error. The caller
 * frees *ret (blocks_job_free). */
int blocks_job_new(struct session *session, const struct msg_blocks *params, bool scatter,
                   struct blocks_job **ret, struct error *err);

/* Does the same for a run of a plan over tables: a list of one block, in as many layers as the tables have
 * entries. */
int blocks_job_of_run(struct session *session, const struct msg_plan_run *params, uint32_t device,
                      struct blocks_job **ret, struct error *err);

/* blocks_job_device returns the device that entry i of the tables runs on. blocks_job_place sets ret->dst and
 * ret->src to the places of that entry; without src_table it leaves ret->src as it is. */
uint32_t blocks_job_device(const struct blocks_job *list, uint32_t i);
void blocks_job_place(const struct blocks_job *list, uint32_t i, struct placed *ret);

/* Sets ret to the devices that the entries run on, that of the first entry first, and returns their
 * number. */
uint32_t blocks_job_devices(const struct blocks_job *list, uint32_t ret[ENGINES_MOST]);

/* Queues a job for the list. answer(job) replies to the request and finds the list in job->own. The call
 * takes over the list, also on failure. Returns 0, QUOTA, NO_MEMORY, or what job_run_on does. */
int blocks_job_start(struct session *session, const struct rpc_request *request, const struct order *order,
                     struct blocks_job *list, void (*answer)(struct job *job), struct error *err);

void blocks_job_free(struct blocks_job *list);

#endif
