/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps all cells until the table is printed, because the widths of the columns are not known before. */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "colour.h"

#define GAP 2

void table_init(struct table *table, const struct table_column *columns, size_t n_columns)
{
	*table = (struct table){ .columns = columns, .n_columns = n_columns };
}

void table_deinit(struct table *table)
{
	free(table->cells);
	*table = (struct table){ 0 };
}

void table_add(struct table *table, const char *format, ...)
{
	va_list args;

	if (table->n_cells == table->room) {
		size_t room = table->room ? 2 * table->room : 64;
		void *cells = realloc(table->cells, room * sizeof *table->cells);

		if (!cells) {
			table->failed = 1;
			return;
		}
		table->cells = cells;
		table->room = room;
	}
	va_start(args, format);
	vsnprintf(table->cells[table->n_cells++], sizeof *table->cells, format, args);
	va_end(args);
}

/* Returns the number of complete rows, at most `most`. */
static size_t rows_of(const struct table *table, size_t most)
{
	size_t rows = table->n_cells / table->n_columns;

	return rows < most ? rows : most;
}

static int width_of(const struct table *table, size_t column, size_t rows)
{
	size_t width = strlen(table->columns[column].title);

	for (size_t r = 0; r < rows; r++) {
		size_t len = strlen(table->cells[r * table->n_columns + column]);

		if (len > width)
			width = len;
	}
	return (int)width;
}

/* Prints a text in its column, cut at the width of the line. *at is the column that the line has reached, and
 * is updated. */
static void print_cell(FILE *file, const char *text, int column_width, int is_number, int is_last, int *at,
                       int width)
{
	int len = (int)strlen(text), space = is_number ? column_width - len : 0;
	int left = width ? width - *at : 1 << 20;

	if (left <= 0)
		return;
	if (space > left)
		space = left;
	fprintf(file, "%*s%.*s", space, "", left - space, text);
	*at += space + len;
	if (is_last)
		return;
	space = column_width + GAP - len - space;
	if (width && *at + space > width)
		space = *at < width ? width - *at : 0;
	fprintf(file, "%*s", space, "");
	*at += space;
}

void table_print(FILE *file, const struct table *table, size_t most, int width, int marked, const char *end)
{
	size_t rows = rows_of(table, most), n = table->n_columns;

	for (size_t r = 0; r <= rows; r++) {
		int at = 0;

		for (size_t c = 0; c < n; c++) {
			const char *text = r ? table->cells[(r - 1) * n + c] : table->columns[c].title;

			if (r == 0)
				fputs(colour((int)c == marked ? COLOUR_REVERSE : COLOUR_BOLD), file);
			print_cell(file, text, width_of(table, c, rows), table->columns[c].is_number,
			           c + 1 == n, &at, width);
			if (r == 0)
				fputs(colour(COLOUR_NONE), file);
		}
		fputs(end, file);
	}
}
