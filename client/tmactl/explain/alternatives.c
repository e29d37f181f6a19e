/* SPDX-License-Identifier: Apache-2.0 */
/* The list of explain in words. */
#include "alternatives.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "client/tmactl/terminal/print.h"
#include "timing.h"

#define TRIED   "tried"
#define DROPPED "dropped"

static int count_state(const tma_document *list, const char *state)
{
	int n = 0;

	for (size_t i = 0; i < tma_document_count(list); i++)
		n += strcmp(field_text(tma_document_at(list, i, NULL), "state"), state) == 0;
	return n;
}

static void print_progress(const tma_document *plan, const tma_document *list)
{
	const int n = (int)tma_document_count(list), dropped = count_state(list, DROPPED);
	const int done = count_state(list, TRIED) + dropped;

	if (field_uint(plan, "settled"))
		printf("the fastest of %d plans has been found", n);
	else if (done == 0)
		printf("runs of the transform will try %d plans", n);
	else
		printf("%d of %d plans have been tried", done, n);
	if (dropped)
		printf("; %d of them, much slower, only once", dropped);
	putchar('\n');
}

static void print_alternative(const tma_document *alternative, int width)
{
	const tma_document *tile = tma_document_find(alternative, "tile");
	const uint64_t measured_ns = field_uint(alternative, "measured_ns");
	const bool in_use = field_uint(alternative, "in_use");
	char time[32];

	printf("%-*s %s", width, in_use ? "in use" : field_text(alternative, "state"),
	       field_text(alternative, "family"));
	for (size_t i = 0; i < tma_document_count(tile); i++)
		printf("%s%" PRId64, i ? "x" : " ", tma_document_int(tma_document_at(tile, i, NULL)));
	printf(": %s predicted", timing_print_ns(field_uint(alternative, "predicted_ns"), time));
	if (measured_ns)
		printf(", %s measured", timing_print_ns(measured_ns, time));
	putchar('\n');
}

void alternatives_print(const tma_document *plan, int width)
{
	const tma_document *list = tma_document_find(plan, "alternatives");

	if (tma_document_count(list) == 0)
		return;
	printf("%-*s ", width, "plans");
	print_progress(plan, list);
	for (size_t i = 0; i < tma_document_count(list); i++)
		print_alternative(tma_document_at(list, i, NULL), width);
}
