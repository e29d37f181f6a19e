/* SPDX-License-Identifier: Apache-2.0 */
/* The expected contents of caches in named layouts. */
#include "kv_formats.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

const uint32_t kv_tp[KV_SIZES] = { 1, 2, 4, 8 };
const struct kv_index kv_whole = { LAYERS, 2, BLOCKS, TOKENS, HEADS, HEAD_SIZE };

struct kv_format kv_formats[KV_MOST_FORMATS];
size_t kv_format_count;

/* Returns the size of the groups that a rank's heads form. */
static int64_t group_of(const struct kv_format *format, int64_t local)
{
	return format->group < local ? format->group : local;
}

uint16_t kv_number(const struct kv_index *at)
{
	return (uint16_t)(((((at->l * 2 + at->k) * BLOCKS + at->n) * TOKENS + at->t) * HEADS + at->h) *
	                      HEAD_SIZE +
	                  at->d);
}

int64_t kv_place(const struct kv_format *format, const struct kv_index *at, const struct kv_index *size)
{
	const char *order = tma_layout_order(format->layout);
	const int64_t group = group_of(format, size->h);
	const bool has_groups = strchr(order, 'g');
	int64_t place = 0;

	for (; *order; order++) {
		if (*order == 'l')
			place = place * size->l + at->l;
		else if (*order == 'k')
			place = place * size->k + at->k;
		else if (*order == 'n')
			place = place * size->n + at->n;
		else if (*order == 't')
			place = place * size->t + at->t;
		else if (*order == 'g')
			place = place * (size->h / group) + at->h / group;
		else if (*order == 'h')
			place = has_groups ? place * group + at->h % group : place * size->h + at->h;
		else if (*order == 'd')
			place = place * size->d + at->d;
	}
	return place;
}

bool kv_index_next(struct kv_index *at)
{
	int64_t *const digits[] = { &at->d, &at->h, &at->t, &at->n, &at->k, &at->l };
	static const int64_t extents[] = { HEAD_SIZE, HEADS, TOKENS, BLOCKS, 2, LAYERS };

	for (int i = 0; i < 6; i++) {
		if (++*digits[i] < extents[i])
			return true;
		*digits[i] = 0;
	}
	return false;
}

static uint16_t *expected_of(const struct kv_format *format, uint32_t ranks)
{
	struct kv_index at = { 0 }, size = kv_whole;
	uint16_t *all = malloc(BYTES);

	cr_assert(all);
	size.h = HEADS / ranks;
	do {
		struct kv_index in_rank = at;

		in_rank.h = at.h % size.h;
		all[at.h / size.h * (ELEMENTS / ranks) + kv_place(format, &in_rank, &size)] = kv_number(&at);
	} while (kv_index_next(&at));
	return all;
}

static void format_add(const tma_layout *layout, int64_t group)
{
	struct kv_format *format = &kv_formats[kv_format_count++];

	cr_assert_leq(kv_format_count, KV_MOST_FORMATS);
	*format = (struct kv_format){ .layout = layout, .group = group };
	for (int s = 0; s < KV_SIZES; s++)
		format->expected[s] = expected_of(format, kv_tp[s]);
}

void kv_formats_init(void)
{
	const tma_layout *layout;

	for (size_t i = 0; (layout = tma_layout_at(i)); i++) {
		const int64_t most = strchr(tma_layout_order(layout), 'g') ? HEADS : 1;

		for (int64_t group = 1; group <= most && !tma_layout_is_blocked(layout); group *= 2)
			format_add(layout, group);
	}
	cr_assert_geq(kv_format_count, 20);
}

void kv_formats_deinit(void)
{
	for (size_t f = 0; f < kv_format_count; f++)
		for (int s = 0; s < KV_SIZES; s++)
			free(kv_formats[f].expected[s]);
	kv_format_count = 0;
}

struct tma_layout_cache kv_cache(const struct kv_format *format, tma_region *region, uint32_t ranks,
                                 uint32_t rank)
{
	return (struct tma_layout_cache){
		.layout = format->layout,
		.region = region,
		.offset = rank * (BYTES / ranks),
		.dtype = TMA_FLOAT16,
		.ranks = ranks,
		.rank = rank,
		.layers = LAYERS,
		.blocks = BLOCKS,
		.tokens = TOKENS,
		.heads = HEADS,
		.head_size = HEAD_SIZE,
		.group = group_of(format, HEADS / ranks),
	};
}
