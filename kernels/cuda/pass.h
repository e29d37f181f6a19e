/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of one pass over the jobs: start what can be started, launch and poll everything in flight, end
 * what has completed. By the thread that drives the engine at the moment (scheduler.h), under the queue's
 * lock. */
#ifndef KERNELS_CUDA_PASS_H
#define KERNELS_CUDA_PASS_H

#include <stdbool.h>

#include "scheduler.h"

void pass_start(struct scheduler *scheduler);

/* Lets the lock go meanwhile. Whether anything moved; *ret_wake: whether the owner has to be woken. */
bool pass_work(struct scheduler *scheduler, bool *ret_wake);

/* The device is lost: all jobs end. Whether the owner has to be woken. */
bool pass_lose(struct scheduler *scheduler);

#endif
