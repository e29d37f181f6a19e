/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl regions: lists the memory that the service has mapped, who owns it, and on which device it is. */
#include "tmactl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"
#include "client/tmactl/terminal/print.h"
#include "client/tmactl/top/sessions.h"
#include "client/tmactl/terminal/table.h"

/* The last column, DEVICE, is left out if the service has a single device. */
static const struct table_column columns[] = {
	{ "USER", 0 }, { "PID", 1 },      { "NAME", 0 }, { "SESSION", 1 }, { "REGION", 1 }, { "KIND", 0 },
	{ "SIZE", 1 }, { "WRITABLE", 0 }, { "JOBS", 1 }, { "STATE", 0 },   { "DEVICE", 1 },
};

struct listing {
	struct tmactl *t;
	tma_document *info;
	struct table table;
	uint64_t regions;
	uint64_t clients; /* connections that have regions */
	uint64_t bytes;
};

static const tma_document *devices_of(const struct listing *l)
{
	return tma_document_find(l->info, "devices");
}

/* Adds the number that `tmactl info` gives the device, or "-" if it lists no such device. */
static void add_device(struct listing *l, const char *uuid)
{
	const tma_document *devices = devices_of(l);
	size_t i = 0;

	while (i < tma_document_count(devices) &&
	       strcmp(field_text(tma_document_at(devices, i, NULL), "uuid"), uuid) != 0)
		i++;
	if (i < tma_document_count(devices))
		table_add(&l->table, "%zu", i);
	else
		table_add(&l->table, "-");
}

static void add_row(struct listing *l, const struct session_row *owner, const tma_document *region)
{
	char size[32];

	table_add(&l->table, "%s", session_owner(owner, size, sizeof size));
	if (owner->pid)
		table_add(&l->table, "%" PRIu64, owner->pid);
	else
		table_add(&l->table, "-");
	table_add(&l->table, "%s", owner->name);
	table_add(&l->table, "%" PRIu64, owner->session);
	table_add(&l->table, "%" PRIu64, field_uint(region, "region"));
	table_add(&l->table, "%s", field_text(region, "kind"));
	table_add(&l->table, "%s", print_bytes(field_uint(region, "size"), size, sizeof size));
	table_add(&l->table, "%s", field_uint(region, "writable") ? "yes" : "no");
	table_add(&l->table, "%" PRIu64, field_uint(region, "jobs"));
	table_add(&l->table, "%s", field_text(region, "state"));
	if (tma_document_count(devices_of(l)) > 1)
		add_device(l, field_text(region, "device"));
}

/* Prints a JSON object of the owner's fields and those of the region, which keep the service's names. */
static int print_json(struct listing *l, const struct session_row *owner, const tma_document *region)
{
	char *json = tma_document_json(region, 0);

	if (!json)
		return fail(&l->t->error, EXIT_FAILED, "out of memory");
	printf("%s\n  {", l->regions ? "," : "");
	session_print_owner_json(owner);
	printf(", \"session\": %" PRIu64 ", %s", owner->session, json + 1);
	free(json);
	return 0;
}

static int add_session(struct listing *l, const struct session_row *owner, const tma_document *regions)
{
	size_t n = tma_document_count(regions);
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		const tma_document *region = tma_document_at(regions, i, NULL);

		if (l->t->json)
			rc = print_json(l, owner, region);
		else
			add_row(l, owner, region);
		l->regions++;
		l->bytes += field_uint(region, "size");
	}
	l->clients += n > 0;
	return rc;
}

/* Asks for the regions of every session before anything is printed, so that with --json a failure is the only
 * document. */
static int ask_all(struct listing *l, tma_client *client, const struct session_list *sessions,
                   tma_document **regions)
{
	for (size_t i = 0; i < sessions->n; i++) {
		if (!sessions->rows[i].regions)
			continue;
		/* NOT_FOUND: the session has ended since it was listed. */
		if (tma_session_regions(client, sessions->rows[i].session, &regions[i]) < 0 &&
		    tma_last_status(client) != TMA_NOT_FOUND)
			return tmactl_refused(client, &l->t->error);
	}
	return 0;
}

static int add_all(struct listing *l, const struct session_list *sessions, tma_document *const *regions)
{
	int rc = 0;

	if (l->t->json)
		putchar('[');
	for (size_t i = 0; i < sessions->n && !rc; i++)
		rc = add_session(l, &sessions->rows[i], regions[i]);
	if (l->t->json)
		puts(l->regions ? "\n]" : "]");
	return rc;
}

static void print_table(const struct listing *l)
{
	char bytes[32];

	if (!l->regions) {
		puts("no regions that you may see");
		return;
	}
	table_print(stdout, &l->table, SIZE_MAX, 0, -1, "\n");
	printf("\n%" PRIu64 " region%s of %" PRIu64 " connection%s, %s\n", l->regions,
	       l->regions == 1 ? "" : "s", l->clients, l->clients == 1 ? "" : "s",
	       print_bytes(l->bytes, bytes, sizeof bytes));
}

static void list(struct listing *l, tma_client *client)
{
	struct session_list sessions;
	tma_document **regions;
	int rc;

	if (tma_info(client, &l->info) < 0 || session_list_get(&sessions, client) < 0) {
		tmactl_refused(client, &l->t->error);
		return;
	}
	table_init(&l->table, columns,
	           sizeof columns / sizeof *columns - !(tma_document_count(devices_of(l)) > 1));
	regions = calloc(sessions.n + 1, sizeof(tma_document *));
	rc = regions ? ask_all(l, client, &sessions, regions)
	             : fail(&l->t->error, EXIT_FAILED, "out of memory");
	if (!rc)
		rc = add_all(l, &sessions, regions);
	if (!rc && !l->t->json)
		print_table(l);
	for (size_t i = 0; regions && i < sessions.n; i++)
		tma_document_free(regions[i]);
	free(regions);
	table_deinit(&l->table);
	session_list_deinit(&sessions);
}

int cmd_regions(struct tmactl *t, int argc, char **argv)
{
	struct listing l = { .t = t };
	tma_client *client = NULL;

	if (!tmactl_no_arguments(t, argc, argv))
		client = tmactl_connect(t, &t->error);
	if (client)
		list(&l, client);
	tma_document_free(l.info);
	tma_free(client);
	return tmactl_report(t);
}
