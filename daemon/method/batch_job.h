/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that move the items of a batch, on one device or on several at once: those of submit and reshard. */
#ifndef DAEMON_METHOD_BATCH_JOB_H
#define DAEMON_METHOD_BATCH_JOB_H

#include <stdint.h>

#include "proto/status.h"

struct batch;
struct job;

/* Has the job run where its items do: 0, or what job_run_on and spread_new say; the caller then drops it. */
int batch_job_run_on(struct job *job, struct batch *batch, struct error *err);

/* Submits the job for the batch's moves, or answers it at once if there is nothing to do or to wait for. */
void batch_job_submit(struct job *job, struct batch *batch);

/* For answer: counts what each item has moved, bytes in all. */
void batch_job_count(struct job *job, const struct batch *batch, uint64_t bytes);

#endif
