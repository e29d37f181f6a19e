/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOLD_EACH   3
#define INNER_PIECE 16

/* The driver accepted 233472 bytes and refused 256800. Only a multiprocessor, and no block, has so much
 * shared memory. */
#define LARGEST_BOX (228u << 10)

static const char *const deviation_names[DEVIATION_COUNT] = {
	[DEVIATION_SLICES] = "inner boxes of no multiple of 16 bytes, with interleave, refused",
	[DEVIATION_LARGE] = "boxes larger than 228 KiB refused",
	[DEVIATION_SWIZZLE] = "swizzles other than 32B, with interleave 32B, taken",
};

/* ---- Deviations -------------------------------------------------------------------------------------- */

static uint64_t inner_bytes(const struct tensor_map_layout *l)
{
	return (uint64_t)l->box[0] * tensor_map_type_size(l->type);
}

/* Counts the box as the driver does: in whole steps of every dimension, including the innermost. The tile
 * never takes less. */
static uint64_t box_bytes(const struct tensor_map_layout *l)
{
	uint64_t bytes = tensor_map_type_size(l->type);

	for (uint32_t d = 0; d < l->rank; d++)
		bytes *= l->box[d] / l->element_stride[d];
	return bytes;
}

/* Returns the known deviation that explains why the driver refuses a legal layout. */
static enum deviation why_refused(const struct tensor_map_layout *l)
{
	if (l->interleave != TENSOR_MAP_INTERLEAVE_NONE && inner_bytes(l) % INNER_PIECE)
		return DEVIATION_SLICES;
	return box_bytes(l) > LARGEST_BOX ? DEVIATION_LARGE : DEVIATION_NONE;
}

/* Returns the known deviation that explains why the driver accepts an illegal layout: only the swizzle may be
 * wrong with it. */
static enum deviation why_taken(const struct tensor_map_layout *l, uint64_t address)
{
	struct tensor_map_layout with_32b = *l;
	struct tensor_map_rules rules;

	with_32b.swizzle = TENSOR_MAP_SWIZZLE_32B;
	return l->interleave == TENSOR_MAP_INTERLEAVE_32B && l->swizzle <= TENSOR_MAP_SWIZZLE_128B &&
	               tensor_map_check(&with_32b, address, &rules) == 0
	           ? DEVIATION_SWIZZLE
	           : DEVIATION_NONE;
}

void judge_print_deviations(const struct judge *judge)
{
	const char *before =
	    "# deviations of the driver from its documentation, which are known and not judged: ";

	for (int i = DEVIATION_NONE + 1; i < DEVIATION_COUNT; i++, before = "; ")
		printf("%s%" PRIu64 " %s", before, judge->deviations[i], deviation_names[i]);
	putchar('\n');
}

/* ---- Judgement --------------------------------------------------------------------------------------- */

/* Writes each field that a rule names once, such as "dim stride". */
static void name_fields(const struct tensor_map_rules *rules, char *ret, size_t size)
{
	size_t used = 0;

	*ret = '\0';
	for (int i = 0; i < rules->n && used < size - 1; i++) {
		char field[24];

		snprintf(field, sizeof field, "%.*s ", (int)strcspn(rules->text[i], "[:"), rules->text[i]);
		if (strstr(ret, field))
			continue;
		snprintf(ret + used, size - used, "%s", field);
		used = strlen(ret);
	}
}

/* Writes the deviation's number, or the fields that the rules name, if any. */
static void name_kind(const struct tensor_map_rules *rules, enum deviation deviation, char *ret, size_t size)
{
	if (deviation)
		snprintf(ret, size, "deviation %d", deviation);
	else
		name_fields(rules, ret, size);
}

static bool is_news(struct judge *judge, const char *kind)
{
	int i = 0;

	while (i < judge->n_kinds && strcmp(judge->kinds[i].fields, kind))
		i++;
	if (i == sizeof judge->kinds / sizeof judge->kinds[0])
		return false;
	if (i == judge->n_kinds)
		strcpy(judge->kinds[judge->n_kinds++].fields, kind);
	return judge->kinds[i].told++ < TOLD_EACH;
}

bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result)
{
	struct tensor_map_rules rules;
	bool legal = tensor_map_check(&draw->layout, address, &rules) == 0;
	enum deviation deviation;
	char kind[sizeof judge->kinds[0].fields], text[512];

	if (legal == (result == CUDA_SUCCESS)) {
		judge->legal += legal;
		judge->illegal += !legal;
		return legal;
	}
	deviation = legal ? why_refused(&draw->layout) : why_taken(&draw->layout, address);
	if (deviation)
		judge->deviations[deviation]++;
	else
		judge->apart++;
	name_kind(&rules, deviation, kind, sizeof kind);
	if (!is_news(judge, kind))
		return false;
	draw_print(draw, text, sizeof text);
	if (legal)
		printf("# the driver refuses what breaks no rule, with result %d%s [%s]\n", result,
		       deviation ? ", as it is known to" : "", text);
	else
		printf("# the driver takes what breaks %d, the first being: %s%s [%s]\n", rules.n,
		       rules.text[0], deviation ? ", as it is known to" : "", text);
	return false;
}
