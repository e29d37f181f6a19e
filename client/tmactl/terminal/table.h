/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text, whose columns become as wide as their longest cell. */
#ifndef CLIENT_TMACTL_TERMINAL_TABLE_H
#define CLIENT_TMACTL_TERMINAL_TABLE_H

#include <stddef.h>
#include <stdio.h>

struct table_column {
	const char *title;
	int is_number; /* the column is right-aligned */
};

struct table {
	const struct table_column *columns;
	size_t n_columns;
	char (*cells)[64]; /* owned; row by row */
	size_t n_cells;
	size_t room; /* cells allocated */
	int failed;  /* it ran out of memory, so cells are missing */
};

void table_init(struct table *table, const struct table_column *columns, size_t n_columns);
void table_deinit(struct table *table);

/* Adds the next cell, row by row. Cuts a text of more than 63 bytes. */
__attribute__((format(printf, 2, 3))) void table_add(struct table *table, const char *format, ...);

/* Prints the titles and at most `most` rows, each followed by `end`. Lines are cut at `width` columns; 0
 * means no limit. The title of column `marked` is shown in reverse; -1 means none. */
void table_print(FILE *file, const struct table *table, size_t most, int width, int marked, const char *end);

#endif
