/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose moves run on several devices, as steps: each is a job for the engine of its device, and
 * starts when the step that it comes after has ended; one that comes after none starts at once.
 *
 * The steps that start at once wait for what the request waits for. When the last step has ended, the
 * request's job goes to the engine of its device for its signal alone, if it has one and nothing failed. A
 * step that fails as a whole, or whose memory fails, keeps those after it from starting; an inexact cast does
 * not. Nothing else of the session is under way meanwhile.
 */
#ifndef DAEMON_RESOURCE_SPREAD_H
#define DAEMON_RESOURCE_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

struct batch;
struct job;
struct spread;

/* Divides the items of a batch, which are the job's, into a step for each device, all of which start at once;
 * the caller frees *ret. 0, what region_reach says of what the job waits for, or NO_MEMORY. */
int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err);

#define SPREAD_AT_ONCE UINT32_MAX

/* The same with a step for each item, which has moves: item i comes after item after[i] < i, or
 * SPREAD_AT_ONCE.
 */
int spread_new_tree(struct job *job, struct batch *batch, const uint32_t *after, struct spread **ret,
                    struct error *err);

/* NULL is allowed. */
void spread_free(struct spread *spread);

/* Gives the first steps to their engines. The job's on_done is called when it has ended as a whole. */
void spread_submit(struct spread *spread);

/* Cancels all of it if no step has begun, and returns whether it did. Engines are asked one after the other:
 * what one has canceled is given to it again if another one has begun. */
bool spread_cancel(struct spread *spread);

/* Starts no further step: the job ends as CANCELED when those that are under way have ended, if any was left.
 */
void spread_stop(struct spread *spread);

#endif
