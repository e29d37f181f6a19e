/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that copy memory continuously, as programs of other users do on a shared machine. Each is in a
 * session of its own and not bound to a CPU. */
#ifndef TESTS_BENCH_NEIGHBOURS_H
#define TESTS_BENCH_NEIGHBOURS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

struct neighbours;

/* Must be called while the process has one thread. Returns when all n processes copy, each as many bytes back
 * and forth. */
int neighbours_new(struct neighbours **ret, unsigned n, size_t bytes, struct error *err);
void neighbours_free(struct neighbours *neighbours); /* neighbours may be NULL */

/* Returns how many copies neighbour i has made. */
uint64_t neighbours_copies(const struct neighbours *neighbours, unsigned i);

#endif
