/* SPDX-License-Identifier: Apache-2.0 */
/* The library's tests run against a tmad that is started for each test or, with TEST_ENGINE=local, in their
 * own process ("local:"). The same tests run in both cases, except for those that rig_skips lists. Failures
 * are reported to Criterion. */
#ifndef TESTS_SERVICE_RIG_H
#define TESTS_SERVICE_RIG_H

#include <stdbool.h>
#include <stddef.h>

#include "client/tmaclient.h"
#include "tests/support/process.h"

/* A test that is skipped on "local:", with the reason that is reported. */
struct rig_skip {
	const char *suite;
	const char *test; /* NULL: all tests of the suite */
	const char *reason;
};

/* The program's table, which ends with an entry whose suite is NULL. A test of the rig fails if an entry
 * names no test of the program. */
extern const struct rig_skip rig_skips[];

bool rig_is_local(void);

/* Starts a tmad with one more argument, or with none if it is NULL, and returns a client connected to
 * service->socket. On "local:" that is the path, no process is started, and a test that the table names is
 * skipped. */
tma_client *rig_start(struct process *service, const char *argument);

/* Frees the client and the memory of rig_region, and stops the tmad, which has to exit with 0. */
void rig_stop(struct process *service, tma_client *client);

/* Returns a region of host memory filled with 0: a memfd that tmad maps too or, on "local:", memory of
 * malloc. */
tma_region *rig_region(tma_client *client, size_t size);

/* Returns the address of the region's memory; tma_region_data for a region that rig_region did not make. */
void *rig_data(const tma_region *region);

#endif
