/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl stats: prints the service's counters, in groups. */
#include "tmactl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/colour.h"
#include "field.h"
#include "client/tmactl/terminal/print.h"
#include "client/tmactl/top/sessions.h"

#define BAR_WIDTH 32

static void print_stats(const tma_document *stats);

int cmd_stats(struct tmactl *t, int argc, char **argv)
{
	tma_document *stats = NULL;
	tma_client *client = NULL;

	if (!tmactl_no_arguments(t, argc, argv))
		client = tmactl_connect(t, &t->error);
	if (client && tma_stats(client, &stats) < 0)
		tmactl_refused(client, &t->error);
	else if (stats && t->json)
		tmactl_print_json(t, stats);
	else if (stats)
		print_stats(stats);
	tma_document_free(stats);
	tma_free(client);
	return tmactl_report(t);
}

/* ---- Numbers ---------------------------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100 * (double)part / (double)whole : 0;
}

static double seconds_up(const tma_document *stats)
{
	double seconds = (double)field_uint(stats, "uptime_ms") / 1e3;

	return seconds > 0.001 ? seconds : 0.001;
}

/* Appends a counter, as in ", 12 plans prepared", or in ", 12 refused" if noun is NULL. Prints nothing if an
 * older service does not send it. */
static void print_held(const tma_document *stats, const char *key, const char *noun, const char *what)
{
	uint64_t n = field_uint(stats, key);
	char text[64];

	if (!tma_document_find(stats, key))
		return;
	if (noun)
		printf(", %s%s", print_counted(n, noun, text, sizeof text), what);
	else
		printf(", %s%s", print_count(n, text, sizeof text), what);
}

static void begin(const char *group)
{
	printf("%s%-12s%s ", colour(COLOUR_BOLD), group, colour(COLOUR_NONE));
}

/* ---- Groups ----------------------------------------------------------------------------------------- */

static void print_service(const tma_document *stats)
{
	char text[64];

	begin("service");
	printf("up %s", print_age(field_uint(stats, "uptime_ms"), text, sizeof text));
	printf(", %s", print_counted(field_uint(stats, "connections"), "open connection", text, sizeof text));
	printf(" (%s accepted", print_count(field_uint(stats, "connections_accepted"), text, sizeof text));
	print_held(stats, "connections_refused", NULL, " refused");
	print_held(stats, "sessions_ended", NULL, " ended by a limit");
	fputs(")", stdout);
	print_held(stats, "recoveries", "recovery", " of the device");
	if (tma_document_find(stats, "engine_up") && !field_uint(stats, "engine_up"))
		printf(", %sthe engine gives no sign of life%s", colour(COLOUR_BAD), colour(COLOUR_NONE));
	putchar('\n');
}

/* Prints a line for each counter, with its share of all. */
static void print_shares(const tma_document *counters, uint64_t all)
{
	char text[32];

	for (size_t i = 0; i < tma_document_count(counters); i++) {
		const char *key;
		uint64_t n = (uint64_t)tma_document_int(tma_document_at(counters, i, &key));

		printf("  %-16s %14s  %5.1f %%\n", print_safe(key), print_count(n, text, sizeof text),
		       percent(n, all));
	}
}

static void print_requests(const tma_document *stats)
{
	const tma_document *methods = tma_document_find(stats, "requests_by_method");
	uint64_t all = field_uint(stats, "requests");
	char text[32], rate[32];

	begin("requests");
	printf("%s, %s a second since the start\n", print_count(all, text, sizeof text),
	       print_rate((double)all / seconds_up(stats), rate, sizeof rate));
	print_shares(methods, all);
}

static void print_errors(const tma_document *stats)
{
	const tma_document *errors = tma_document_find(stats, "errors");
	uint64_t all = field_sum(errors);
	char text[32];

	begin("errors");
	if (!all) {
		puts("none");
		return;
	}
	printf("%s%s%s\n", colour(COLOUR_BAD), print_count(all, text, sizeof text), colour(COLOUR_NONE));
	print_shares(errors, all);
}

/* Prints the bytes moved by each path, that is, by each kernel family, and the rate while the engine moved
 * them. */
static void print_moved(const tma_document *stats)
{
	const tma_document *bytes = tma_document_find(stats, "bytes"), *ns = tma_document_find(stats, "ns");
	uint64_t all = field_sum(bytes);
	char text[32];

	begin("moved");
	printf("%s read + written", print_bytes(all, text, sizeof text));
	printf(", %s a second since the start\n",
	       print_bytes((uint64_t)((double)all / seconds_up(stats)), text, sizeof text));
	for (size_t i = 0; i < tma_document_count(bytes); i++) {
		const char *key;
		uint64_t n = (uint64_t)tma_document_int(tma_document_at(bytes, i, &key));
		uint64_t time = field_uint(ns, key);

		printf("  %-16s %14s  %5.1f %%", print_safe(key), print_bytes(n, text, sizeof text),
		       percent(n, all));
		if (time)
			printf("  %.3g GB/s in the engine", (double)n / (double)time);
		putchar('\n');
	}
}

static void print_bar(const char *below, uint64_t n, uint64_t most, uint64_t all)
{
	int width = most ? (int)((double)n / (double)most * BAR_WIDTH + 0.5) : 0;
	char text[32];

	printf("  %-16s %14s  %5.1f %%  %s%.*s%s\n", below, print_count(n, text, sizeof text),
	       percent(n, all), colour(COLOUR_HINT), n && width < 1 ? 1 : width,
	       "################################", colour(COLOUR_NONE));
}

static void print_latency(const tma_document *stats)
{
	uint64_t bars[LATENCY_BARS], all = 0, most = 0;
	int first = LATENCY_BARS, last = 0;
	char text[32], p50[32];

	latency_read(tma_document_find(stats, "latency"), bars);
	for (int i = 0; i < LATENCY_BARS; i++) {
		if (bars[i] && first == LATENCY_BARS)
			first = i;
		last = bars[i] ? i : last;
		most = bars[i] > most ? bars[i] : most;
		all += bars[i];
	}
	begin("latency");
	if (!all) {
		puts("nothing was moved");
		return;
	}
	print_us((double)latency_percentile(bars, 50), p50, sizeof p50);
	print_us((double)latency_percentile(bars, 99), text, sizeof text);
	printf("p50 < %s, p99 < %s: of transforms, from reading the request to queuing the reply\n", p50,
	       text);
	for (int i = first; i <= last; i++) {
		char label[40] = "longer";

		if (i < LATENCY_BARS - 1)
			snprintf(label, sizeof label, "< %s",
			         print_us((double)(UINT64_C(1) << i), text, sizeof text));
		print_bar(label, bars[i], most, all);
	}
}

static void print_cache(const tma_document *stats, const char *key, const char *title)
{
	const tma_document *cache = tma_document_find(stats, key);
	uint64_t hits = field_uint(cache, "hits"), all = hits + field_uint(cache, "misses");
	char text[32];

	if (!cache)
		return;
	begin(title);
	if (all)
		printf("%.1f %% of %s found", percent(hits, all), print_count(all, text, sizeof text));
	else
		printf("not used");
	printf(", %s held", print_count(field_uint(cache, "entries"), text, sizeof text));
	printf(", %s evicted\n", print_count(field_uint(cache, "evictions"), text, sizeof text));
}

static void print_now(const tma_document *stats)
{
	char text[64];

	begin("memory");
	fputs(print_counted(field_uint(stats, "regions"), "region", text, sizeof text), stdout);
	printf(" of %s", print_bytes(field_uint(stats, "mapped_bytes"), text, sizeof text));
	print_held(stats, "plans", "plan", " prepared");
	print_held(stats, "tables", "table", " prepared");
	putchar('\n');
	begin("queue");
	fputs(print_counted(field_uint(stats, "jobs"), "transform", text, sizeof text), stdout);
	print_held(stats, "waiting", "connection", " waiting");
	print_held(stats, "stalled_users", "user", " stalled");
	print_held(stats, "pending_fds", "descriptor", " received");
	print_held(stats, "outgoing_fds", "descriptor", " sent and not received");
	printf(", %s of replies unsent\n", print_bytes(field_uint(stats, "queued_bytes"), text, sizeof text));
}

/* Prints the users in the service's order, with the engine time that each has used. */
static void print_users(const tma_document *stats)
{
	const tma_document *users = tma_document_find(stats, "users");
	char user[264];

	if (tma_document_count(users) == 0)
		return;
	begin("users");
	printf("seconds of the engine, and of its multiprocessors\n");
	for (size_t i = 0; i < tma_document_count(users); i++) {
		const tma_document *row = tma_document_at(users, i, NULL);
		uint64_t most = field_uint(row, "multiprocessors");

		if (tma_document_find(row, "cgroup"))
			snprintf(user, sizeof user, "%s", field_text(row, "cgroup"));
		else
			snprintf(user, sizeof user, "uid %" PRIu64, field_uint(row, "uid"));
		printf("  %-16s %14.3f %14.3f", user, (double)field_uint(row, "ns") / 1e9,
		       (double)field_uint(row, "multiprocessor_ns") / 1e9);
		if (most)
			printf("  at most %" PRIu64 " at once", most);
		putchar('\n');
	}
}

/* Returns the index of a device in the list, which is the number that print_devices() shows. */
static size_t number_of(const tma_document *devices, const char *uuid)
{
	size_t i = 0;

	while (i < tma_document_count(devices) &&
	       strcmp(field_text(tma_document_at(devices, i, NULL), "device"), uuid) != 0)
		i++;
	return i;
}

/* Prints what was moved between devices, which are named by the numbers that print_devices() shows. */
static void print_links(const tma_document *stats)
{
	const tma_document *links = tma_document_find(stats, "links");
	const tma_document *devices = tma_document_find(stats, "devices");
	char bytes[32];

	for (size_t i = 0; i < tma_document_count(links); i++) {
		const tma_document *link = tma_document_at(links, i, NULL);

		printf("  %zu to %zu: %s\n", number_of(devices, field_text(link, "from")),
		       number_of(devices, field_text(link, "to")),
		       print_bytes(field_uint(link, "bytes"), bytes, sizeof bytes));
	}
}

/* Prints what each device has done and the bytes of the regions on it, if there are several devices. */
static void print_devices(const tma_document *stats)
{
	const tma_document *devices = tma_document_find(stats, "devices");
	char moved[32], mapped[32];

	if (tma_document_count(devices) < 2)
		return;
	begin("devices");
	printf("seconds of the engine, bytes moved, and bytes of regions\n");
	for (size_t i = 0; i < tma_document_count(devices); i++) {
		const tma_document *row = tma_document_at(devices, i, NULL);

		printf("  %zu  %-40s %14.3f %10s %10s%s\n", i, field_text(row, "device"),
		       (double)field_uint(row, "ns") / 1e9,
		       print_bytes(field_uint(row, "bytes"), moved, sizeof moved),
		       print_bytes(field_uint(row, "mapped_bytes"), mapped, sizeof mapped),
		       tma_document_int(tma_document_find(row, "up")) ? "" : "  silent");
	}
}

static void print_stats(const tma_document *stats)
{
	print_service(stats);
	print_now(stats);
	print_requests(stats);
	print_errors(stats);
	print_moved(stats);
	print_users(stats);
	print_devices(stats);
	print_links(stats);
	print_latency(stats);
	print_cache(stats, "plan_cache", "plan cache");
	print_cache(stats, "tensor_maps", "tensor maps");
}
