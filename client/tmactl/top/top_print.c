/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a snapshot: a heading of two lines, a line for each device if there are several, and a table with a
 * row for each session. */
#include "top_print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/tmactl/terminal/colour.h"
#include "client/tmactl/field.h"
#include "client/tmactl/terminal/print.h"
#include "client/tmactl/terminal/table.h"

#define HEAD_LINES 5 /* the heading's two lines, the note, an empty line and the table's titles */

static const struct table_column columns[] = {
	{ "USER", 0 }, { "PID", 1 },    { "NAME", 0 },   { "REQ/S", 1 }, { "GB/S", 1 },   { "P50", 1 },
	{ "P99", 1 },  { "ERRORS", 1 }, { "MAPPED", 1 }, { "JOBS", 1 },  { "DEVICE", 1 }, { "SMS", 1 },
};

/* The index in columns[] of each sort_key. */
static const int column_of[SORT_COUNT] = { 3, 4, 5, 6, 7, 8, 0, 1 };

static char *us_or_none(uint64_t us, char *text, size_t size)
{
	if (!us)
		snprintf(text, size, "-");
	else
		print_us((double)us, text, size);
	return text;
}

static char *gigabytes(double bytes_per_s, char *text, size_t size)
{
	double gb = bytes_per_s / 1e9;

	snprintf(text, size, "%.*f",
	         gb < 0.0005   ? 0
	         : gb < 0.9995 ? 3
	         : gb < 9.995  ? 2
	         : gb < 99.95  ? 1
	                       : 0,
	         gb);
	return text;
}

static void add_row(struct table *table, const struct usage *u)
{
	const struct session_row *s = u->session;
	char text[32];

	table_add(table, "%s", session_owner(s, text, sizeof text));
	if (s->pid)
		table_add(table, "%" PRIu64, s->pid);
	else
		table_add(table, "-");
	table_add(table, "%s", s->name);
	table_add(table, "%s", print_rate(u->requests_per_s, text, sizeof text));
	table_add(table, "%s", gigabytes(u->bytes_per_s, text, sizeof text));
	table_add(table, "%s", us_or_none(u->p50_us, text, sizeof text));
	table_add(table, "%s", us_or_none(u->p99_us, text, sizeof text));
	table_add(table, "%s", print_count(s->errors, text, sizeof text));
	table_add(table, "%s", print_bytes(s->mapped_bytes, text, sizeof text));
	table_add(table, "%s", print_count(s->jobs, text, sizeof text));
	table_add(table, "%.0f%%", 100 * u->device);
	table_add(table, "%.1f", u->multiprocessors);
}

/* Prints a line, cut at `width` columns; 0 means no limit. */
__attribute__((format(printf, 4, 5))) static void line(FILE *file, int width, enum colour which,
                                                       const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (width && (size_t)width < strlen(text))
		text[width] = '\0';
	fprintf(file, "%s%s%s\n", colour(which), text, colour(COLOUR_NONE));
}

static void print_head(FILE *file, const struct snapshot *snapshot, int width)
{
	uint64_t clients = field_uint(snapshot->stats, "connections");
	uint64_t regions = field_uint(snapshot->stats, "regions");
	char age[32], bytes[32], requests[32], moved[32], p50[32], p99[32];

	clients -= clients > 0; /* Does not count tmactl's own connection. */
	line(file, width, COLOUR_BOLD,
	     "tmad %s %s %s  up %s  %" PRIu64 " client%s  %" PRIu64 " region%s %s  queue %" PRIu64,
	     field_text(snapshot->info, "version"), field_text(snapshot->info, "engine"),
	     field_text(snapshot->info, "device"),
	     print_age(field_uint(snapshot->stats, "uptime_ms"), age, sizeof age), clients,
	     clients == 1 ? "" : "s", regions, regions == 1 ? "" : "s",
	     print_bytes(field_uint(snapshot->stats, "mapped_bytes"), bytes, sizeof bytes),
	     field_uint(snapshot->stats, "jobs"));
	line(file, width, COLOUR_NONE, "total: %s req/s  %s GB/s  p50 %s  p99 %s  waiting %" PRIu64,
	     print_rate(snapshot->all.requests_per_s, requests, sizeof requests),
	     gigabytes(snapshot->all.bytes_per_s, moved, sizeof moved),
	     us_or_none(snapshot->all.p50_us, p50, sizeof p50),
	     us_or_none(snapshot->all.p99_us, p99, sizeof p99), field_uint(snapshot->stats, "waiting"));
}

/* Returns the number of lines about devices, which are printed only if there are several. */
static int device_lines(const struct snapshot *snapshot)
{
	return snapshot->n_devices > 1 ? (int)snapshot->n_devices : 0;
}

/* Writes "  to 2: 1.5 GB/s" to text for each device to which device `from` sends anything, as far as these
 * fit. Returns text. */
static const char *links_text(const struct snapshot *snapshot, size_t from, char *text, size_t size)
{
	char moved[32];
	size_t len = 0;

	*text = '\0';
	for (size_t to = 0; to < snapshot->n_devices && len < size; to++) {
		const double bytes_per_s = snapshot->links[from * snapshot->n_devices + to];

		if (bytes_per_s > 0)
			len += (size_t)snprintf(text + len, size - len, "  to %zu: %s GB/s", to,
			                        gigabytes(bytes_per_s, moved, sizeof moved));
	}
	return text;
}

static void print_devices(FILE *file, const struct snapshot *snapshot, int width)
{
	char moved[32], bytes[32], links[256];

	for (int i = 0; i < device_lines(snapshot); i++) {
		const struct device_usage *u = &snapshot->devices[i];
		const uint64_t jobs = field_uint(u->now, "jobs"), regions = field_uint(u->now, "regions");

		line(file, width, COLOUR_NONE,
		     "device %d %s: %.0f%%  %s GB/s  %" PRIu64 " request%s  %" PRIu64 " region%s %s%s%s", i,
		     field_text(u->now, "device"), 100 * u->device,
		     gigabytes(u->bytes_per_s, moved, sizeof moved), jobs, jobs == 1 ? "" : "s", regions,
		     regions == 1 ? "" : "s",
		     print_bytes(field_uint(u->now, "mapped_bytes"), bytes, sizeof bytes),
		     tma_document_int(tma_document_find(u->now, "up")) ? "" : "  silent",
		     links_text(snapshot, (size_t)i, links, sizeof links));
	}
}

void top_print(FILE *file, const struct snapshot *snapshot, enum sort_key key, const char *note, int width,
               int lines)
{
	const int head = HEAD_LINES + device_lines(snapshot);
	size_t room = !lines ? SIZE_MAX : lines > head ? (size_t)(lines - head) : 0;
	struct table table;

	print_head(file, snapshot, width);
	print_devices(file, snapshot, width);
	if (*note || lines)
		line(file, width, COLOUR_BAD, "%s", note);
	fputc('\n', file);
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (size_t i = 0; i < snapshot->sessions.n && i < room; i++)
		add_row(&table, &snapshot->usage[i]);
	table_print(file, &table, room, width, lines ? column_of[key] : -1, "\n");
	table_deinit(&table);
}

static void print_usage_json(const struct usage *u)
{
	printf("\"requests_per_s\": %.3f, \"bytes_per_s\": %.0f, \"p50_us\": ", u->requests_per_s,
	       u->bytes_per_s);
	if (u->p50_us)
		printf("%" PRIu64 ", \"p99_us\": %" PRIu64, u->p50_us, u->p99_us);
	else
		printf("null, \"p99_us\": null");
}

static void print_text_json(const char *key, const char *text)
{
	printf(", \"%s\": ", key);
	print_json_string(text, strlen(text), 1);
}

/* Prints the bytes per second from a device to each device, itself included. */
static void print_links_json(const struct snapshot *snapshot, size_t from)
{
	fputs(", \"sent_bytes_per_s\": [", stdout);
	for (size_t to = 0; to < snapshot->n_devices; to++)
		printf("%s%.0f", to ? ", " : "", snapshot->links[from * snapshot->n_devices + to]);
	fputs("]", stdout);
}

static void print_devices_json(const struct snapshot *snapshot)
{
	fputs(", \"devices\": [", stdout);
	for (size_t i = 0; i < snapshot->n_devices; i++) {
		const struct device_usage *u = &snapshot->devices[i];

		printf("%s{\"index\": %zu", i ? ", " : "", i);
		print_text_json("device", field_text(u->now, "device"));
		printf(", \"bytes_per_s\": %.0f, \"busy\": %.3f, \"jobs\": %" PRIu64 ", \"regions\": %" PRIu64
		       ", \"mapped_bytes\": %" PRIu64,
		       u->bytes_per_s, u->device, field_uint(u->now, "jobs"), field_uint(u->now, "regions"),
		       field_uint(u->now, "mapped_bytes"));
		print_links_json(snapshot, i);
		fputs("}", stdout);
	}
	fputs("]", stdout);
}

void top_print_json(const struct snapshot *snapshot, const char *error)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"time\": %.3f", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
	if (!snapshot) {
		print_text_json("error", error);
		puts("}");
		return;
	}
	print_text_json("version", field_text(snapshot->info, "version"));
	print_text_json("boot_id", field_text(snapshot->info, "boot_id"));
	print_text_json("engine", field_text(snapshot->info, "engine"));
	print_text_json("device", field_text(snapshot->info, "device"));
	printf(", \"uptime_ms\": %" PRIu64 ", \"connections\": %" PRIu64 ", \"regions\": %" PRIu64
	       ", \"mapped_bytes\": %" PRIu64 ", \"jobs\": %" PRIu64 ", \"waiting\": %" PRIu64 ", ",
	       field_uint(snapshot->stats, "uptime_ms"), field_uint(snapshot->stats, "connections"),
	       field_uint(snapshot->stats, "regions"), field_uint(snapshot->stats, "mapped_bytes"),
	       field_uint(snapshot->stats, "jobs"), field_uint(snapshot->stats, "waiting"));
	print_usage_json(&snapshot->all);
	print_devices_json(snapshot);
	fputs(", \"sessions\": [", stdout);
	for (size_t i = 0; i < snapshot->sessions.n; i++) {
		const struct usage *u = &snapshot->usage[i];

		printf("%s{\"session\": %" PRIu64 ", ", i ? ", " : "", u->session->session);
		session_print_owner_json(u->session);
		fputs(", ", stdout);
		print_usage_json(u);
		printf(", \"errors\": %" PRIu64 ", \"regions\": %" PRIu64 ", \"mapped_bytes\": %" PRIu64
		       ", \"jobs\": %" PRIu64 ", \"device\": %.3f, \"multiprocessors\": %.3f}",
		       u->session->errors, u->session->regions, u->session->mapped_bytes, u->session->jobs,
		       u->device, u->multiprocessors);
	}
	puts("]}");
}
