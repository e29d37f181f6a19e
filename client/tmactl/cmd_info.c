/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl info: shows the service's version, engine, devices, limits, methods and element types. */
#include "tmactl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/colour.h"
#include "field.h"
#include "client/tmactl/terminal/print.h"

#define COLUMN 10 /* column at which the text after a title begins */

static void print_info(const tma_document *info);

int cmd_info(struct tmactl *t, int argc, char **argv)
{
	tma_document *info = NULL;
	tma_client *client = NULL;

	if (!tmactl_no_arguments(t, argc, argv))
		client = tmactl_connect(t, &t->error);
	if (client && tma_info(client, &info) < 0)
		tmactl_refused(client, &t->error);
	else if (info && t->json)
		tmactl_print_json(t, info);
	else if (info)
		print_info(info);
	tma_document_free(info);
	tma_free(client);
	return tmactl_report(t);
}

/* Prints a title and returns the column that the line has reached. */
static int begin(const char *title)
{
	printf("%s%-*s%s", colour(COLOUR_BOLD), COLUMN, title, colour(COLOUR_NONE));
	return COLUMN;
}

static int ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

/* Prints a limit as a plain number and, if its name says that it is in bytes, ms or us, again with a unit. */
static void print_limit(const char *name, int64_t value)
{
	char text[32] = "";

	if (strstr(name, "bytes"))
		print_bytes((uint64_t)value, text, sizeof text);
	else if (ends_with(name, "_ms"))
		print_us((double)value * 1e3, text, sizeof text);
	else if (ends_with(name, "_us"))
		print_us((double)value, text, sizeof text);
	if (value == 0)
		*text = '\0';
	printf("  %-24s %14" PRId64 "%s%s\n", name, value, *text ? "  " : "", text);
}

static void print_names(const char *title, const tma_document *names)
{
	char text[2048] = "";
	size_t len = 0;

	for (size_t i = 0; i < tma_document_count(names) && len + 64 < sizeof text; i++) {
		const char *name = tma_document_text(tma_document_at(names, i, NULL));

		len += (size_t)snprintf(text + len, sizeof text - len, "%s%.60s", i ? ", " : "",
		                        print_safe(name));
	}
	print_wrapped(text, COLUMN, begin(title));
}

/* Appends how many peers a device reaches by NVLink and by PCIe, as in ", 4 peers by NVLink". */
static void print_links(const tma_document *links)
{
	size_t n = tma_document_count(links), by_nvlink = 0;

	for (size_t i = 0; i < n; i++)
		by_nvlink += !strcmp(field_text(tma_document_at(links, i, NULL), "kind"), "nvlink");
	if (by_nvlink > 0)
		printf(", %zu peer%s by NVLink", by_nvlink, by_nvlink == 1 ? "" : "s");
	if (by_nvlink < n)
		printf(", %zu by PCIe", n - by_nvlink);
}

/* Prints a line for each device, which begins with its number. */
static void print_devices(const tma_document *devices)
{
	char bytes[32];

	for (size_t i = 0; i < tma_document_count(devices); i++) {
		const tma_document *device = tma_document_at(devices, i, NULL);

		print_bytes(field_uint(device, "memory"), bytes, sizeof bytes);
		printf("%*s%zu  %s, %s, %s, %" PRIu64 " multiprocessors", COLUMN, "", i,
		       field_text(device, "uuid"), field_text(device, "name"), bytes,
		       field_uint(device, "multiprocessors"));
		print_links(tma_document_find(device, "links"));
		putchar('\n');
	}
}

static void print_info(const tma_document *info)
{
	const tma_document *limits = tma_document_find(info, "limits");
	const tma_document *note = tma_document_find(info, "note");
	const char *key;

	begin("tmad");
	printf("%s, protocol %" PRId64 ", boot id %s\n", field_text(info, "version"),
	       tma_document_int(tma_document_find(info, "protocol")), field_text(info, "boot_id"));
	begin("engine");
	printf("%s: %s\n", field_text(info, "engine"), field_text(info, "device"));
	print_devices(tma_document_find(info, "devices"));
	if (note)
		print_wrapped(field_text(info, "note"), COLUMN, begin("why"));
	begin("limits");
	putchar('\n');
	for (size_t i = 0; i < tma_document_count(limits); i++) {
		const tma_document *value = tma_document_at(limits, i, &key);

		print_limit(print_safe(key), tma_document_int(value));
	}
	print_names("methods", tma_document_find(info, "methods"));
	print_names("dtypes", tma_document_find(info, "dtypes"));
}
