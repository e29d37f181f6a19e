/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the lines of a table. */
#include "table.h"

void table_print_cells(FILE *out, const struct table_column *columns, int n, char cells[][TABLE_CELL],
                       enum report_format format)
{
	if (format == REPORT_MARKDOWN) {
		for (int i = 0; i < n; i++)
			fprintf(out, "| %s ", cells[i]);
		fputs("|\n", out);
	} else {
		for (int i = 0; i < n - 1; i++)
			fprintf(out, "%*s ", columns[i].width, cells[i]);
		fprintf(out, "%s\n", cells[n - 1]);
	}
	fflush(out);
}

void table_print_titles(FILE *out, const struct table_column *columns, int n, enum report_format format)
{
	char cells[TABLE_MAX_COLUMNS][TABLE_CELL];

	for (int i = 0; i < n; i++)
		snprintf(cells[i], TABLE_CELL, "%s", columns[i].title);
	table_print_cells(out, columns, n, cells, format);
	if (format == REPORT_MARKDOWN) {
		for (int i = 0; i < n; i++)
			fputs("|---", out);
		fputs("|\n", out);
	}
}
