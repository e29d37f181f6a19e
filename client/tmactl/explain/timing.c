/* SPDX-License-Identifier: Apache-2.0 */
/* Describes predicted and measured times. An older service does not send them, and then there is no text. */
#include "timing.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "client/tmactl/terminal/print.h"

#define MOST_RUNS 7 /* maximum number of runs of which the service takes the median */

const char *timing_print_ns(uint64_t ns, char text[32])
{
	if (ns >= 9950)
		return print_us((double)ns / 1e3, text, 32);
	snprintf(text, 32, "%.1f us", (double)ns / 1e3);
	return text;
}

double timing_ratio(const tma_document *plan)
{
	const uint64_t predicted_ns = field_uint(plan, "predicted_ns"), copy_ns = field_uint(plan, "copy_ns");

	return copy_ns ? (double)predicted_ns / (double)copy_ns : 0;
}

double timing_cost(const tma_document *plan)
{
	return timing_ratio(plan) ?: (double)field_uint(plan, "predicted_percent") / 100;
}

static void add_prediction(const tma_document *plan, char *text, size_t size)
{
	const double ratio = timing_ratio(plan);
	char time[32];

	if (ratio > 0)
		snprintf(text, size, "%s predicted (%.2f times a copy's)",
		         timing_print_ns(field_uint(plan, "predicted_ns"), time), ratio);
	else if (timing_cost(plan) > 0)
		snprintf(text, size, "%.2f times a copy's predicted", timing_cost(plan));
}

static void add_median(const tma_document *plan, uint64_t runs, char *text, size_t size)
{
	char time[32], count[32];

	timing_print_ns(field_uint(plan, "measured_ns"), time);
	if (runs > MOST_RUNS)
		snprintf(text, size, "%s measured (median of the last %d runs)", time, MOST_RUNS);
	else
		snprintf(text, size, "%s measured (%s%s)", time, runs > 1 ? "median of " : "",
		         print_counted(runs, "run", count, sizeof count));
}

static void add_measurement(const tma_document *plan, char *text, size_t size)
{
	const uint64_t runs = field_uint(plan, "runs"), measured = field_uint(plan, "measured_runs");
	char count[32];

	if (measured)
		add_median(plan, measured, text, size);
	else if (!runs)
		snprintf(text, size, "not measured: the service has not run it");
	else
		snprintf(text, size, "not measured: during its %s, %s",
		         print_counted(runs, "run", count, sizeof count),
		         strcmp(field_text(plan, "engine"), "cpu") == 0
		             ? "other transforms ran"
		             : "other transforms ran or data crossed the bus");
}

char *timing_text(const tma_document *plan, char text[TIMING_SIZE])
{
	size_t len;

	text[0] = '\0';
	add_prediction(plan, text, TIMING_SIZE);
	if (!tma_document_find(plan, "runs"))
		return text;
	len = strlen(text);
	if (len)
		len += (size_t)snprintf(text + len, TIMING_SIZE - len, "; ");
	add_measurement(plan, text + len, TIMING_SIZE - len);
	return text;
}
