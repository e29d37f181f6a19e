/* SPDX-License-Identifier: Apache-2.0 */
/* Names families, and collects rules. */
#include "family.h"

#include <stdarg.h>
#include <stdio.h>

const char *const family_names[FAMILY_COUNT] = {
	[FAMILY_MEMCPY] = "memcpy",
	[FAMILY_TILE_COPY] = "tile_copy",
	[FAMILY_TILE_TRANSPOSE] = "tile_transpose",
	[FAMILY_STRIDED] = "strided",
	[FAMILY_FILL] = "fill",
	[FAMILY_CONVERT] = "convert",
};

void family_rules_add(struct family_rules *rules, enum family family, const char *format, ...)
{
	struct family_rule *rule;
	va_list args;

	if (rules->n == FAMILY_MOST_RULES)
		return;
	rule = &rules->rule[rules->n++];
	rule->family = family;
	va_start(args, format);
	vsnprintf(rule->text, sizeof rule->text, format, args);
	va_end(args);
}
