/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that copy memory from the time they are started until they are ended, as programs of other users
 * do on a machine that is shared. Each is in a session of its own, and not bound to a CPU.
 */
#ifndef TESTS_BENCH_NEIGHBOURS_H
#define TESTS_BENCH_NEIGHBOURS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

struct neighbours;

/* While the process has one thread. Returns when all n of them copy, each as many bytes to and fro. */
int neighbours_new(struct neighbours **ret, unsigned n, size_t bytes, struct error *err);
void neighbours_free(struct neighbours *neighbours); /* NULL is allowed */

/* How many copies neighbour i has made. */
uint64_t neighbours_copies(const struct neighbours *neighbours, unsigned i);

#endif
