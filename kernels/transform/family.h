/* SPDX-License-Identifier: Apache-2.0 */
/* The family of a transform says how its interior moves. Every reply carries it. */
#ifndef KERNELS_TRANSFORM_FAMILY_H
#define KERNELS_TRANSFORM_FAMILY_H

enum family {
	FAMILY_MEMCPY,         /* one contiguous run on both sides */
	FAMILY_TILE_COPY,      /* inner dimension contiguous on both sides: rows */
	FAMILY_TILE_TRANSPOSE, /* contiguous along different dimensions: 2-D tiles */
	FAMILY_STRIDED,        /* everything else */
	FAMILY_FILL,           /* no source is read */
	FAMILY_CONVERT,        /* elements become others */
	FAMILY_COUNT
};

extern const char *const family_names[FAMILY_COUNT];

/* A rule says why a better family was not legal. */
struct family_rule {
	enum family family;
	char text[120];
};

#define FAMILY_MOST_RULES 12

struct family_rules {
	int n;
	struct family_rule rule[FAMILY_MOST_RULES];
};

/* Adds a rule. Rules past FAMILY_MOST_RULES are left out. */
__attribute__((format(printf, 3, 4))) void family_rules_add(struct family_rules *rules, enum family family,
                                                            const char *format, ...);

#endif
