/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a report: cells in columns, as text or as Markdown. */
#ifndef TESTS_BENCH_TABLE_H
#define TESTS_BENCH_TABLE_H

#include <stdio.h>

#include "report.h"

#define TABLE_CELL        64
#define TABLE_MAX_COLUMNS 16

struct table_column {
	const char *title;
	int width; /* width in text; negative: aligned to the left */
};

/* Prints the titles, and in Markdown the line below them. Neither function is for REPORT_JSON. */
void table_print_titles(FILE *out, const struct table_column *columns, int n, enum report_format format);

/* Prints one line, whose last cell is not padded. */
void table_print_cells(FILE *out, const struct table_column *columns, int n, char cells[][TABLE_CELL],
                       enum report_format format);

#endif
