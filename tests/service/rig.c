/* SPDX-License-Identifier: Apache-2.0 */
/* Starts what a test runs against, and skips tests that do not apply to "local:". */
#include "rig.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory of a region on "local:". */
struct memory {
	const tma_region *region;
	void *data;
	struct memory *next;
};

static struct memory *memories;

/* The linker defines these symbols around the section with the program's tests. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];

bool rig_is_local(void)
{
	return strcmp(process_engine(), "local") == 0;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static bool names(const struct rig_skip *skip, const struct criterion_test *test)
{
	return strcmp(skip->suite, test->category) == 0 &&
	       (!skip->test || strcmp(skip->test, test->name) == 0);
}

static bool names_any(const struct rig_skip *skip)
{
	for (struct criterion_test **test = __start_cr_tst; test < __stop_cr_tst; test++)
		if (*test && names(skip, *test))
			return true;
	return false;
}

Test(rig, skips_tests_that_there_are)
{
	for (const struct rig_skip *skip = rig_skips; skip->suite; skip++)
		cr_expect(names_any(skip), "%s::%s", skip->suite, skip->test ? skip->test : "*");
}

static void skip_if_listed(void)
{
	for (const struct rig_skip *skip = rig_skips; skip->suite; skip++)
		if (names(skip, criterion_current_test))
			cr_skip("%s", skip->reason);
}

/* ---- The service -------------------------------------------------------------------------------------- */

/* Sets a pid that no process has, so that a test that kills its service by mistake fails without killing
 * anything. */
static void start_nothing(struct process *service)
{
	skip_if_listed();
	service->pid = INT_MAX;
	strcpy(service->socket, "local:");
}

tma_client *rig_start(struct process *service, const char *argument)
{
	tma_client *client;

	if (rig_is_local())
		start_nothing(service);
	else
		process_start(service, argument);
	client = tma_new();
	cr_assert(client);
	cr_assert_eq(tma_connect(client, service->socket), TMA_OK, "%s", tma_last_error(client));
	return client;
}

static void free_memories(void)
{
	struct memory *memory;

	while ((memory = memories)) {
		memories = memory->next;
		free(memory->data);
		free(memory);
	}
}

void rig_stop(struct process *service, tma_client *client)
{
	tma_free(client);
	free_memories();
	if (!rig_is_local())
		process_stop(service, SIGTERM);
}

/* ---- Regions ------------------------------------------------------------------------------------------ */

static tma_region *own_region(tma_client *client, size_t size)
{
	struct memory *memory = calloc(1, sizeof *memory);
	tma_region *region = NULL;

	cr_assert(memory);
	memory->data = calloc(1, size);
	cr_assert(memory->data);
	cr_assert_eq(tma_region_from_host_ptr(client, memory->data, size, 0, &region), TMA_OK, "%s",
	             tma_last_error(client));
	memory->region = region;
	memory->next = memories;
	memories = memory;
	return region;
}

tma_region *rig_region(tma_client *client, size_t size)
{
	tma_region *region = NULL;

	if (rig_is_local())
		return own_region(client, size);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, size, &region), TMA_OK, "%s",
	             tma_last_error(client));
	return region;
}

void *rig_data(const tma_region *region)
{
	for (const struct memory *memory = memories; memory; memory = memory->next)
		if (memory->region == region)
			return memory->data;
	return tma_region_data(region);
}
