/* SPDX-License-Identifier: Apache-2.0 */
/* A table for people, whose columns are as wide as they need to be. */
#ifndef CLIENT_TMACTL_TERMINAL_TABLE_H
#define CLIENT_TMACTL_TERMINAL_TABLE_H

#include <stddef.h>
#include <stdio.h>

struct table_column {
	const char *title;
	int is_number; /* stands to the right */
};

struct table {
	const struct table_column *columns;
	size_t n_columns;
	char (*cells)[64]; /* row by row */
	size_t n_cells;
	size_t room;
	int failed; /* out of memory: cells are missing */
};

void table_init(struct table *table, const struct table_column *columns, size_t n_columns);
void table_deinit(struct table *table);

/* The next cell; a longer text is cut. */
__attribute__((format(printf, 2, 3))) void table_add(struct table *table, const char *format, ...);

/* The title and at most `most` rows. width: columns of the terminal, which no line passes; 0: as many as are
 * needed. marked: the column whose title is shown so; -1: none. Lines end with `end`. */
void table_print(FILE *file, const struct table *table, size_t most, int width, int marked, const char *end);

#endif
