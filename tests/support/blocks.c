/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <string.h>

/* Most bytes of one side's memory that blocks are drawn for; large blocks are fewer. */
#define FILL_BYTES 600000

static uint64_t chance(uint64_t *state, uint64_t n)
{
	return oracle_random(state) % n;
}

static uint64_t pitch(uint64_t *state, uint64_t bytes, uint32_t element)
{
	const uint64_t aligns[] = { 16, 128, element, 1 };
	const uint64_t align = aligns[chance(state, 4)];

	bytes += chance(state, 3) ? 0 : chance(state, 100);
	return (bytes + align - 1) / align * align;
}

static void draw_side(uint64_t *state, struct blocks_side *side, uint64_t blocks, uint32_t layers,
                      uint64_t bytes, uint64_t offset, uint32_t element)
{
	uint64_t step = pitch(state, bytes, element), layer = pitch(state, step * blocks, element);

	side->offset = ORACLE_GUARD + offset;
	side->blocks = blocks;
	side->list = (struct engine_blocks_side){ .step = step, .layer_step = layer };
	side->end = 2 * ORACLE_GUARD + layer * layers;
	if (chance(state, 2))
		return;
	/* Names the same blocks in another order. */
	for (uint32_t l = 0; l < layers; l++) {
		uint32_t at = (uint32_t)chance(state, l + 1);

		side->layers[l] = side->layers[at];
		side->layers[at] = (int64_t)(l * layer);
	}
	side->list.layer_step = 0;
	side->list.layers = side->layers;
}

static int64_t draw_number(uint64_t *state, const struct engine_blocks *b, uint64_t limit, bool inline_index)
{
	const int64_t block = (int64_t)chance(state, limit);
	const uint64_t kind = chance(state, 8);

	if (kind == 0)
		return -1;
	if (kind == 1 && !inline_index)
		return chance(state, 2) ? (int64_t)(limit + chance(state, 1000))
		                        : -2 - (int64_t)chance(state, 1000);
	if (kind == 2 && !inline_index && b->index_bytes == 8)
		return block + (INT64_C(1) << 32);
	return block;
}

static bool names_blocks(const struct blocks_case *c, uint64_t i)
{
	return (uint64_t)c->dst_block[i] < blocks_dst_count(&c->blocks) &&
	       (uint64_t)c->src_block[i] < blocks_src_count(&c->blocks);
}

/* Writes the entry's block numbers as the list packs them. */
static void pack_entry(struct blocks_case *c, uint64_t i)
{
	const struct engine_blocks *b = &c->blocks;
	unsigned char *at = c->packed + 1 + i * blocks_entry_bytes(b);

	memcpy(at, b->scatter ? &c->dst_block[i] : &c->src_block[i], b->index_bytes);
	if (b->pairs)
		memcpy(at + b->index_bytes, &c->dst_block[i], b->index_bytes);
}

/* Draws the index so that no block of the destination is named twice. */
static void draw_index(uint64_t *state, struct blocks_case *c, bool inline_index)
{
	struct engine_blocks *b = &c->blocks;
	bool used[BLOCKS_CASE_BLOCKS] = { false };

	for (uint64_t i = 0; i < b->n; i++) {
		int64_t *dst = &c->dst_block[i], *src = &c->src_block[i];

		*dst = *src = (int64_t)i;
		if (blocks_src_is_indexed(b))
			*src = draw_number(state, b, b->limit, inline_index);
		if (blocks_dst_is_indexed(b)) {
			*dst = draw_number(state, b, blocks_dst_count(b), inline_index);
			if (names_blocks(c, i) && used[*dst])
				*dst = -1;
			else if (names_blocks(c, i))
				used[*dst] = true;
		}
		c->passed += *dst == -1 || *src == -1;
		c->beyond += *dst != -1 && *src != -1 && !names_blocks(c, i);
		pack_entry(c, i);
	}
}

void blocks_case_draw(uint64_t seed, struct blocks_case *c, bool inline_index)
{
	uint64_t state = seed * 77 + 1, most;
	struct engine_blocks *b = &c->blocks;

	*c = (struct blocks_case){ 0 };
	oracle_random_case(seed, &c->block);
	most = FILL_BYTES / (c->block.dst_size + c->block.src_size + 1) + 1;
	b->n = 1 + chance(&state, most < BLOCKS_CASE_ENTRIES ? most : BLOCKS_CASE_ENTRIES);
	b->limit = 1 + chance(&state, most < BLOCKS_CASE_BLOCKS ? most : BLOCKS_CASE_BLOCKS);
	b->layers = 1 + (uint32_t)chance(&state, BLOCKS_CASE_LAYERS);
	b->scatter = chance(&state, 2);
	b->pairs = !b->scatter && chance(&state, 2);
	b->dst_limit =
	    b->pairs ? 1 + chance(&state, most < BLOCKS_CASE_BLOCKS ? most : BLOCKS_CASE_BLOCKS) : 0;
	b->index_bytes = chance(&state, 2) ? 4 : 8;
	draw_index(&state, c, inline_index);
	draw_side(&state, &c->dst, blocks_dst_count(b), b->layers, c->block.dst_size, c->block.dst_offset,
	          dtype_size(c->block.spec.dst.dtype));
	draw_side(&state, &c->src, blocks_src_count(b), b->layers, c->block.src_size, c->block.src_offset,
	          dtype_size(c->block.spec.src.dtype));
	b->dst = c->dst.list;
	b->src = c->src.list;
}

static uint64_t place_of(const struct blocks_side *side, uint64_t block, uint32_t layer)
{
	return side->offset + block * side->list.step +
	       (side->list.layers ? (uint64_t)side->list.layers[layer] : layer * side->list.layer_step);
}

void blocks_case_expect(const struct blocks_case *c, unsigned char *dst, const unsigned char *src)
{
	const struct engine_blocks *b = &c->blocks;

	for (uint32_t l = 0; l < b->layers; l++)
		for (uint64_t i = 0; i < b->n; i++)
			if (names_blocks(c, i))
				oracle_run(&c->block.spec,
				           dst + place_of(&c->dst, (uint64_t)c->dst_block[i], l),
				           src + place_of(&c->src, (uint64_t)c->src_block[i], l));
}
