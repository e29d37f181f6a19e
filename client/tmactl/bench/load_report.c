/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a load's measurements, as text or as JSON. */
#include "load_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/print.h"

static const struct {
	const char *name;
	double percent;
} percentiles[] = { { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 }, { "max", 100 } };

#define N_PERCENTILES (sizeof percentiles / sizeof percentiles[0])

static double seconds_of(const struct load_result *r)
{
	return r->ns ? (double)r->ns / 1e9 : 1e-9;
}

/* Returns the engine's average time for a request, in microseconds. */
static double engine_us(const struct load_result *r)
{
	return r->latency.count ? (double)r->engine_ns / 1e3 / (double)r->latency.count : 0;
}

static void print_shape(const struct tma_tensor *tensor)
{
	for (int d = 0; d < tensor->rank; d++)
		printf("%s%" PRId64, d ? "," : "", tensor->shape[d]);
}

void load_report(const struct load *load, const char *kind, const struct load_result *r)
{
	const char *comma = "";
	char text[32];

	printf("%-9s %s%s", "kind", kind, load->is_prepared ? ", prepared," : "");
	if (load->request) {
		printf(" %s ", tma_dtype_name(load->request->src.dtype));
		print_shape(&load->request->src);
		fputs(" -> ", stdout);
		print_shape(&load->request->dst);
		if (*r->path)
			printf(" by %s", r->path);
	}
	printf("\n%-9s %u connection%s, %u deep, %.2f s\n", "load", load->connections,
	       load->connections == 1 ? "" : "s", load->depth, seconds_of(r));
	printf("%-9s %" PRIu64 ", %.0f a second\n", "requests", r->latency.count,
	       (double)r->latency.count / seconds_of(r));
	printf("%-9s ", "latency");
	for (size_t i = 0; i < N_PERCENTILES; i++)
		printf("%s%s %.1f us", i ? ", " : "", percentiles[i].name,
		       (double)histogram_percentile(&r->latency, percentiles[i].percent) / 1e3);
	if (load->request)
		printf("\n%-9s %s a second, read + written; %.1f us each in the engine", "bytes",
		       print_bytes((uint64_t)((double)r->bytes / seconds_of(r)), text, sizeof text),
		       engine_us(r));
	printf("\n%-9s ", "errors");
	for (int i = 0; i < LOAD_STATUSES; i++) {
		if (!r->failed[i])
			continue;
		printf("%s%s %" PRIu64, comma, tma_status_name(-i), r->failed[i]);
		comma = ", ";
	}
	puts(*comma ? "" : "none");
	if (r->reconnects)
		printf("%-9s %" PRIu64 " time%s; %" PRIu64 " request%s had no answer\n", "reconnected",
		       r->reconnects, r->reconnects == 1 ? "" : "s", r->unanswered,
		       r->unanswered == 1 ? "" : "s");
}

void load_report_json(const struct load *load, const char *kind, const struct load_result *r,
                      const struct failure *f)
{
	const char *comma = "";

	printf("{\n  \"kind\": \"%s\",\n  \"prepared\": %s,\n  \"connections\": %u,\n  \"pipeline\": %u,\n",
	       kind, load->is_prepared ? "true" : "false", load->connections, load->depth);
	printf("  \"seconds\": %.6f,\n  \"requests\": %" PRIu64 ",\n  \"requests_per_s\": %.1f,\n",
	       seconds_of(r), r->latency.count, (double)r->latency.count / seconds_of(r));
	printf("  \"latency_us\": {");
	for (size_t i = 0; i < N_PERCENTILES; i++)
		printf("%s\"%s\": %.3f", i ? ", " : "", percentiles[i].name,
		       (double)histogram_percentile(&r->latency, percentiles[i].percent) / 1e3);
	printf("},\n  \"bytes\": %" PRIu64
	       ",\n  \"bytes_per_s\": %.0f,\n  \"engine_us\": %.3f,\n  \"reconnects\": %" PRIu64
	       ",\n  \"unanswered\": %" PRIu64 ",\n  \"errors\": {",
	       r->bytes, (double)r->bytes / seconds_of(r), engine_us(r), r->reconnects, r->unanswered);
	for (int i = 0; i < LOAD_STATUSES; i++) {
		if (!r->failed[i])
			continue;
		printf("%s\"%s\": %" PRIu64, comma, tma_status_name(-i), r->failed[i]);
		comma = ", ";
	}
	putchar('}');
	if (f) {
		printf(",\n  \"status\": \"%s\",\n  \"message\": ", failure_name(f));
		print_json_string(f->text, strlen(f->text), 1);
		printf(",\n  \"exit_code\": %d", f->code);
	}
	puts("\n}");
}
