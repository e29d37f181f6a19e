/* SPDX-License-Identifier: Apache-2.0 */
/* The library's tests run against a tmad that is started for each test or, with TEST_ENGINE=local,
 * their own process ("local:"). The tests are the same, but for those of a table. Failures are Criterion's.
 */
#ifndef TESTS_SERVICE_RIG_H
#define TESTS_SERVICE_RIG_H

#include <stdbool.h>
#include <stddef.h>

#include "client/tmaclient.h"
#include "tests/support/process.h"

/* A test that is skipped on "local:", with the reason, which is reported. */
struct rig_skip {
	const char *suite;
	const char *test; /* NULL: all of the suite */
	const char *reason;
};

/* The program's table, which ends with a row without a suite. A test of the rig's fails if a row names no
 * test of the program. */
extern const struct rig_skip rig_skips[];

bool rig_is_local(void);

/* Starts a tmad with one more argument (NULL: none) and returns a client that is connected to
 * service->socket. On "local:" that is the path, no process is started, and a test that the table names is
 * skipped. */
tma_client *rig_start(struct process *service, const char *argument);

/* Frees the client and the memory of rig_region, and ends the tmad, which has to exit with 0. */
void rig_stop(struct process *service, tma_client *client);

/* Returns a region of host memory, all 0: a memfd that tmad maps too or, on "local:", memory of malloc. */
tma_region *rig_region(tma_client *client, size_t size);

/* Returns the address of the region's memory; of one that was not made by rig_region, tma_region_data. */
void *rig_data(const tma_region *region);

#endif
