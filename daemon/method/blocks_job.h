/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a gather or scatter request, checked and turned into a list of blocks for the engine. */
#ifndef DAEMON_METHOD_BLOCKS_JOB_H
#define DAEMON_METHOD_BLOCKS_JOB_H

#include <stdint.h>

#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "transforms.h"

struct session;
struct table;

/* Lives as long as its job, with copies of what came in the message. */
struct blocks_job {
	struct engine_blocks blocks;
	struct placed placed;
	struct charge charge;                /* list_bytes_per_uid, for what came in the message */
	struct table *dst_table, *src_table; /* NULL: the side lies in one region */
	struct region *index;                /* NULL: the entries came in the message */
	uint64_t n;      /* entries; 0: nothing to move, and the engine gets one entry of -1 */
	int64_t *sorted; /* room for as many offsets as dst has layers */
	int64_t words[]; /* offsets of layers, room to sort them, entries */
};

/* Checks all fields of a request except its order. *ret_plan has a reference for the caller, and the caller
 * frees *ret; on refusal, nothing is left of either. */
int blocks_job_new(struct session *session, const struct msg_blocks *params, bool scatter,
                   struct blocks_job **ret, struct plan_entry **ret_plan, struct error *err);

void blocks_job_free(struct blocks_job *list);

#endif
