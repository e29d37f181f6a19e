/* SPDX-License-Identifier: Apache-2.0 */
/* memcpy on several threads, with which engines are compared.
 *
 * The threads are started once. Between baseline_start and baseline_stop they spin, so that handing work to
 * them costs one cache line transfer; otherwise they sleep and use no CPU time. Each thread, including the
 * caller as the last one, copies one stretch on a CPU of its own.
. */
#ifndef TESTS_BENCH_BASELINE_H
#define TESTS_BENCH_BASELINE_H

#include <stddef.h>

#include "proto/status.h"

/* A thread's stretch is at least this long: two threads copy a shorter one no faster than one thread. */
#define BASELINE_STRETCH (64 << 10)

struct baseline;

int baseline_new(struct baseline **ret, unsigned threads, struct error *err);
void baseline_free(struct baseline *baseline); /* baseline may be NULL */

/* Prepares for copies of n bytes. */
void baseline_start(struct baseline *baseline, size_t n);
void baseline_stop(struct baseline *baseline);

/* Returns when all is copied. n is as given to baseline_start. */
void baseline_copy(struct baseline *baseline, void *dst, const void *src, size_t n);

#endif
