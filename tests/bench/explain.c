/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a plan in words, in the order of tmactl explain. */
#include "explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct text {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vsnprintf(text->at, text->left, format, args);
	va_end(args);
	size_t taken = n < 0 ? 0 : (size_t)n < text->left ? (size_t)n : text->left - 1;
	text->at += taken;
	text->left -= taken;
}

void explain_plan(const struct engine_explanation *of, char *text, size_t size)
{
	struct text rest = { .at = text, .left = size };

	append(&rest, of->tile.rank ? "tile " : "no tile");
	for (int d = 0; d < of->tile.rank; d++)
		append(&rest, "%s%" PRId64, d ? "x" : "", of->tile.n[d]);
	if (of->tile.element)
		append(&rest, ", %" PRIu32 "-byte elements", of->tile.element);
	if (of->tile.rank)
		append(&rest, ", swizzle %s", of->swizzle);
	append(&rest, ", grid %" PRId64 "\n", of->grid);
	for (int i = 0; i < of->rules.n; i++)
		append(&rest, "not %s: %s\n", family_names[of->rules.rule[i].family], of->rules.rule[i].text);
}
