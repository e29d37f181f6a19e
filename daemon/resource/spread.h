/* SPDX-License-Identifier: Apache-2.0 */
/* Batches whose items lie on several devices: each device's engine has those of its own as a job, all of them
 * at once.
 *
 * Each waits for what the batch waits for. When the last has ended, the batch's job goes to the engine of its
 * device for its signal alone, if it has one and nothing failed. Nothing else of the session is under way
 * meanwhile. What has been given to engines is not canceled by itself, only with all of the session's jobs.
 */
#ifndef DAEMON_RESOURCE_SPREAD_H
#define DAEMON_RESOURCE_SPREAD_H

#include "proto/status.h"

struct batch;
struct job;
struct spread;

/* Divides the items of a batch, which are the job's; the caller frees *ret. 0, what region_reach says of what
 * the job waits for, or NO_MEMORY. */
int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err);

/* NULL is allowed. */
void spread_free(struct spread *spread);

/* Gives all to their engines. The job's on_done is called when it has ended as a whole. */
void spread_submit(struct spread *spread);

#endif
