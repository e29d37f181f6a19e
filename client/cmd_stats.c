/* tmactl stats: the service's counters. */
#include "tmactl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "print.h"

static void print_stats(const tma_document *stats);
static void print_amounts(const tma_document *map);
static void print_latency(const tma_document *buckets);

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

static void print_stats(const tma_document *stats)
{
	size_t count = tma_document_count(stats);
	const tma_document *value;
	const char *key;
	char text[32];

	for (size_t i = 0; i < count; i++) {
		value = tma_document_at(stats, i, &key);
		printf("%-20s  ", key);
		if (!strcmp(key, "bytes") && tma_document_count(value))
			print_amounts(value);
		else if (!strcmp(key, "mapped_bytes"))
			fputs(print_bytes((uint64_t)tma_document_int(value), text, sizeof text), stdout);
		else if (!strcmp(key, "latency") && tma_document_kind(value) == TMA_DOCUMENT_LIST)
			print_latency(value);
		else
			print_value(value);
		putchar('\n');
	}
}

static void print_amounts(const tma_document *map)
{
	size_t count = tma_document_count(map);
	const tma_document *value;
	const char *key;
	char text[32];

	for (size_t i = 0; i < count; i++) {
		value = tma_document_at(map, i, &key);
		printf("%s%s %s", i ? ", " : "", key,
		       print_bytes((uint64_t)tma_document_int(value), text, sizeof text));
	}
}

/* "< 64 us 1203, < 128 us 4", the bars that are not empty. */
static void print_latency(const tma_document *buckets)
{
	size_t count = tma_document_count(buckets);
	const char *comma = "";

	for (size_t i = 0; i < count; i++) {
		const tma_document *bucket = tma_document_at(buckets, i, NULL);
		int64_t below = tma_document_int(tma_document_find(bucket, "below_ns"));
		int64_t n = tma_document_int(tma_document_find(bucket, "count"));

		if (!n)
			continue;
		if (!below)
			printf("%slonger %" PRId64, comma, n);
		else if (below < 1000000)
			printf("%s< %.3g us %" PRId64, comma, (double)below / 1e3, n);
		else
			printf("%s< %.3g ms %" PRId64, comma, (double)below / 1e6, n);
		comma = ", ";
	}
	if (!*comma)
		fputs("none", stdout);
}
