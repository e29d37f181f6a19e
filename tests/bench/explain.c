/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words, in the order of tmactl explain. */
#include "explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "kernels/plan/plan_tile.h"

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

void explain_plan(const struct plan *plan, char *text, size_t size)
{
	struct text rest = { .at = text, .left = size };
	struct plan_tile tile;

	plan_tile_of(plan, &tile);
	append(&rest, tile.rank ? "tile " : "no tile");
	for (int d = 0; d < tile.rank; d++)
		append(&rest, "%s%" PRId64, d ? "x" : "", tile.n[d]);
	if (tile.element)
		append(&rest, ", %" PRIu32 "-byte elements", tile.element);
	if (tile.rank)
		append(&rest, ", swizzle %s", plan->swizzle);
	append(&rest, ", grid %" PRId64 "\n", plan->grid);
	for (int i = 0; i < plan->n_rules; i++)
		append(&rest, "not %s: %s\n", family_names[plan->rules[i].family], plan->rules[i].text);
}
