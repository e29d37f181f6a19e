/* SPDX-License-Identifier: Apache-2.0 */
/* memcpy on threads: what an engine is held against.
 *
 * The threads are started once. Between baseline_start and baseline_stop they stand by without sleeping, so
 * that handing work to them costs a cache line; outside they sleep and take no time from anyone. Each copies
 * a stretch of its own on a CPU of its own, the caller the last one.
 */
#ifndef TESTS_BENCH_BASELINE_H
#define TESTS_BENCH_BASELINE_H

#include <stddef.h>

#include "proto/status.h"

/* A thread's stretch is no shorter: that is the least which is done faster by two than by one. */
#define BASELINE_STRETCH (64 << 10)

struct baseline;

int baseline_new(struct baseline **ret, unsigned threads, struct error *err);
void baseline_free(struct baseline *baseline); /* NULL is allowed */

/* For copies of n bytes. */
void baseline_start(struct baseline *baseline, size_t n);
void baseline_stop(struct baseline *baseline);

/* Returns when all is copied. n as given to baseline_start. */
void baseline_copy(struct baseline *baseline, void *dst, const void *src, size_t n);

#endif
