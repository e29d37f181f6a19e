/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the boxes of a plan tile the output, read the right bytes, keep to their budget and have long
 * runs. */
#include "client/tmactl/copy/box.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

/* Describes an axis of a file; set_dst_strides sets its stride in the output. */
#define AXIS(n, pad, from, stride)                                                       \
	{                                                                                \
		.extent = (n), .before = (pad), .source = (from), .src_stride = (stride) \
	}

#define FILE_BYTES 4096

static uint32_t state = 1;

static int64_t random_below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

/* Returns the source index that output index o of an axis reads, or -1 for the fill value. It follows the
 * definition of each mode step by step. */
static int64_t oracle_index(const struct view_axis *axis, enum tma_pad_mode mode, int64_t o)
{
	int64_t i = o - axis->before;
	int64_t n = axis->source;

	while (i < 0 || i >= n) {
		if (mode == TMA_PAD_CONSTANT)
			return -1;
		if (mode == TMA_PAD_EDGE || n == 1)
			i = i < 0 ? 0 : n - 1;
		else if (mode == TMA_PAD_WRAP)
			i = i < 0 ? i + n : i - n;
		else if (mode == TMA_PAD_SYMMETRIC)
			i = i < 0 ? -1 - i : 2 * n - 1 - i;
		else
			i = i < 0 ? -i : 2 * (n - 1) - i;
	}
	return i;
}

/* Sets strides such that the output is contiguous. */
static void set_dst_strides(struct view *view)
{
	int64_t stride = view->dst_element;

	for (int d = view->rank - 1; d >= 0; d--) {
		view->axis[d].dst_stride = stride;
		stride *= view->axis[d].extent;
	}
}

/* Draws a view of elements of one or two bytes, at most FILE_BYTES of them in the file. */
static void random_view(struct view *view)
{
	int order[4] = { 0, 1, 2, 3 };
	int64_t stride;

	*view = (struct view){ .rank = (int)random_below(5),
		               .mode = (enum tma_pad_mode)random_below(TMA_PAD_WRAP + 1),
		               .element = 1u << random_below(2),
		               .src_offset = (uint64_t)random_below(64) };
	for (int d = view->rank - 1; d > 0; d--) {
		int other = (int)random_below(d + 1);
		int swap = order[d];

		order[d] = order[other];
		order[other] = swap;
	}
	stride = view->element;
	view->dst_bytes = view->dst_element = view->element;
	for (int k = 0; k < view->rank; k++) {
		struct view_axis *axis = &view->axis[order[k]];
		/* The view reads `source` of these indices in the file. */
		int64_t whole = 1 + random_below(k ? 6 : 9);

		axis->source = random_below(3) ? whole : 1 + random_below(whole);
		if (view->mode == TMA_PAD_CONSTANT && !random_below(20))
			axis->source = 0;
		axis->before = random_below(3) ? 0 : random_below(12);
		axis->extent = axis->source + axis->before + (random_below(3) ? 0 : random_below(12));
		if (!axis->extent)
			axis->before = axis->extent = 1;
		axis->src_stride = stride;
		stride *= whole;
		view->dst_bytes *= (uint64_t)axis->extent;
	}
	set_dst_strides(view);
}

static uint8_t file_byte(uint64_t offset)
{
	return (uint8_t)(offset * 167 + offset / 251 + 1);
}

static uint64_t packed_bytes(const struct box_runs *runs)
{
	return runs->bytes * runs->count;
}

static void read_box(const struct box *box, uint8_t *packed)
{
	int64_t position[BOX_MAX_RANK] = { 0 };
	uint64_t offset = box->src.offset;

	if (!box->src.count)
		return;
	do
		for (uint64_t i = 0; i < box->src.bytes; i++)
			*packed++ = file_byte(offset + i);
	while (box_runs_next(&box->src, position, &offset));
}

/* Transforms a box as the service does: a strided copy of the packed source, padded. */
static void transform_box(const struct view *view, const struct box *box, const uint8_t *packed, uint8_t *out)
{
	int64_t at[BOX_MAX_RANK] = { 0 };
	int64_t count = 1;

	for (int d = 0; d < view->rank; d++)
		count *= box->piece[d].len;
	for (int64_t i = 0; i < count; i++) {
		int64_t source = (int64_t)box->src_start;
		bool fill = false;
		int64_t rest = i;

		for (int d = view->rank - 1; d >= 0; d--) {
			const struct box_piece *p = &box->piece[d];
			struct view_axis local = { .extent = p->len,
				                   .before = p->before,
				                   .source = p->step ? p->src_len : p->len };
			int64_t index;

			at[d] = rest % p->len;
			rest /= p->len;
			cr_assert_eq(p->before + local.source + p->after, p->len);
			index = oracle_index(&local, view->mode, at[d]);
			fill |= index < 0;
			source += index * box->src_stride[d];
		}
		for (uint32_t b = 0; b < view->element; b++)
			out[i * view->element + b] = fill ? 0 : packed[source + b];
	}
}

static void write_box(const struct box *box, const uint8_t *data, uint8_t *out, uint8_t *written)
{
	int64_t position[BOX_MAX_RANK] = { 0 };
	uint64_t offset = box->dst.offset;

	do {
		memcpy(out + offset, data, box->dst.bytes);
		for (uint64_t i = 0; i < box->dst.bytes; i++)
			written[offset + i]++;
		data += box->dst.bytes;
	} while (box_runs_next(&box->dst, position, &offset));
}

static void check_output(const struct view *view, const uint8_t *out, int round)
{
	uint64_t count = view->dst_bytes / view->element;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t source = view->src_offset;
		bool fill = false;
		uint64_t rest = i;

		for (int d = view->rank - 1; d >= 0; d--) {
			int64_t o = (int64_t)(rest % (uint64_t)view->axis[d].extent);
			int64_t index = oracle_index(&view->axis[d], view->mode, o);

			rest /= (uint64_t)view->axis[d].extent;
			fill |= index < 0;
			source += (uint64_t)(index * view->axis[d].src_stride);
		}
		for (uint32_t b = 0; b < view->element; b++)
			cr_assert_eq(out[i * view->element + b], fill ? 0 : file_byte(source + b),
			             "round %d, element %d", round, (int)i);
	}
}

Test(box, boxes_tile_the_output_and_read_what_it_needs)
{
	for (int round = 0; round < 4000; round++) {
		struct failure f = { 0 };
		struct box_plan plan;
		struct view view;
		struct box box;
		uint64_t budget = (uint64_t)(4 + random_below(round % 2 ? 60 : 2000));
		uint8_t *written;
		uint8_t *out;

		random_view(&view);
		if (view.dst_bytes > 1 << 16)
			continue;
		cr_assert_eq(box_plan_init(&plan, &view, budget, &f), 0);
		cr_assert_leq(plan.src_bytes + plan.dst_bytes, budget, "round %d", round);
		out = calloc(1, view.dst_bytes);
		written = calloc(1, view.dst_bytes);
		for (uint64_t i = 0; i < plan.n_boxes; i++) {
			uint8_t *packed;
			uint8_t *data;

			box_get(&plan, i, &box);
			cr_assert_leq(packed_bytes(&box.src), plan.src_bytes, "round %d", round);
			cr_assert_leq(packed_bytes(&box.dst), plan.dst_bytes, "round %d", round);
			packed = malloc(packed_bytes(&box.src) + 1);
			data = malloc(packed_bytes(&box.dst));
			read_box(&box, packed);
			transform_box(&view, &box, packed, data);
			write_box(&box, data, out, written);
			free(packed);
			free(data);
		}
		for (uint64_t i = 0; i < view.dst_bytes; i++)
			cr_assert_eq(written[i], 1, "round %d, byte %d", round, (int)i);
		check_output(&view, out, round);
		free(out);
		free(written);
		box_plan_deinit(&plan);
	}
}

static void plan_of(struct box_plan *plan, struct view *view, uint64_t budget)
{
	struct failure f = { 0 };

	if (!view->dst_element)
		view->dst_element = view->element;
	view->dst_bytes = view->dst_element;
	for (int d = 0; d < view->rank; d++)
		view->dst_bytes *= (uint64_t)view->axis[d].extent;
	set_dst_strides(view);
	cr_assert_eq(box_plan_init(plan, view, budget, &f), 0);
}

Test(box, a_transpose_has_long_runs_on_both_sides)
{
	struct view view = { .rank = 2,
		             .element = 4,
		             .axis = { AXIS(16384, 0, 16384, 4), AXIS(16384, 0, 16384, 65536) } };
	struct box_plan plan;
	struct box box;

	plan_of(&plan, &view, 64 << 20);
	box_get(&plan, plan.n_boxes - 1, &box);
	cr_assert_geq(box.src.bytes, 2048);
	cr_assert_geq(box.dst.bytes, 32768);
	cr_assert_geq(plan.src_bytes + plan.dst_bytes, 32 << 20);
	box_plan_deinit(&plan);
}

Test(box, a_plain_copy_is_one_run_a_box)
{
	struct view view = { .rank = 1, .element = 8, .axis = { AXIS(100000000, 0, 100000000, 8) } };
	struct box_plan plan;
	struct box box;

	plan_of(&plan, &view, 64 << 20);
	box_get(&plan, 1, &box);
	cr_assert_eq(box.src.count, 1);
	cr_assert_eq(box.dst.count, 1);
	cr_assert_eq(box.src.offset, box.dst.offset);
	box_plan_deinit(&plan);
}

Test(box, elements_that_become_larger_count_as_such)
{
	struct view view = {
		.rank = 1, .element = 1, .dst_element = 8, .axis = { AXIS(100000000, 0, 100000000, 1) }
	};
	struct box_plan plan;
	struct box box;

	plan_of(&plan, &view, 1 << 20);
	cr_assert_leq(plan.src_bytes + plan.dst_bytes, 1 << 20);
	cr_assert_geq(plan.src_bytes + plan.dst_bytes, 1 << 19);
	box_get(&plan, 1, &box);
	cr_assert_eq(box.dst.bytes, 8 * box.src.bytes);
	cr_assert_eq(box.dst.offset, 8 * box.src.offset);
	box_plan_deinit(&plan);
}

Test(box, small_gaps_are_read_over)
{
	/* Each row has seven bytes of eight; runs of 7 bytes would take a system call each. */
	struct view view = { .rank = 2,
		             .element = 1,
		             .axis = { AXIS(1000000, 0, 1000000, 8), AXIS(7, 0, 7, 1) } };
	struct box_plan plan;
	struct box box;

	plan_of(&plan, &view, 1 << 20);
	box_get(&plan, 0, &box);
	cr_assert_eq(box.src.count, 1);
	cr_assert_eq(box.src_stride[0], 8);
	cr_assert_eq(box.src_stride[1], 1);
	box_plan_deinit(&plan);
}

Test(box, one_element_fits_any_budget)
{
	struct view view = { .rank = 1, .element = 16, .axis = { AXIS(3, 0, 3, 16) } };
	struct box_plan plan;

	plan_of(&plan, &view, 1);
	cr_assert_eq(plan.n_boxes, 3);
	box_plan_deinit(&plan);
}

Test(box, a_file_of_any_size_needs_no_list_of_its_boxes)
{
	int64_t n = INT64_C(1) << 50;
	struct view view = { .rank = 2, .element = 1, .axis = { AXIS(2, 1, 1, n), AXIS(n, 0, n, 1) } };
	struct box_plan plan;
	struct box box;

	plan_of(&plan, &view, 1 << 20);
	cr_assert_null(plan.axis[0].v);
	cr_assert_null(plan.axis[1].v);
	box_get(&plan, plan.n_boxes - 1, &box);
	cr_assert_eq(box.dst.offset + box.dst.bytes, 2 * (uint64_t)n);
	cr_assert_eq(box.src.offset + box.src.bytes, (uint64_t)n);
	box_plan_deinit(&plan);
}

/* Gives a random view without borders blocks whose scale is one byte or four. */
static void set_blocks(struct view *view)
{
	view->scale_element = random_below(2) ? 4 : 1;
	view->scale_bytes = view->scale_element;
	view->out_rank = view->rank;
	for (int d = 0; d < view->rank; d++) {
		struct view_axis *axis = &view->axis[d];

		axis->before = 0;
		axis->source = axis->extent;
		axis->block = 1 + random_below(axis->extent);
		view->scale_shape[d] = (axis->extent + axis->block - 1) / axis->block;
		view->scale_bytes *= (uint64_t)view->scale_shape[d];
	}
}

Test(box, blocks_that_have_scales_are_whole)
{
	for (int round = 0; round < 4000; round++) {
		uint64_t budget = (uint64_t)(4 + random_below(round % 2 ? 60 : 2000)), least = 0;
		struct failure f = { 0 };
		struct box_plan plan;
		struct view view;
		uint8_t *written;

		random_view(&view);
		if (view.dst_bytes > 1 << 16)
			continue;
		set_blocks(&view);
		cr_assert_eq(box_plan_init(&plan, &view, budget, &f), 0);
		written = calloc(1, view.scale_bytes);
		for (uint64_t i = 0; i < plan.n_boxes; i++) {
			int64_t position[BOX_MAX_RANK] = { 0 };
			struct box box;
			uint64_t offset;

			box_get(&plan, i, &box);
			for (int d = 0; d < view.rank; d++) {
				const struct box_piece *p = &box.piece[d];
				const struct view_axis *axis = &view.axis[d];

				cr_assert_eq(p->dst % axis->block, 0, "round %d", round);
				cr_assert(p->len % axis->block == 0 || p->dst + p->len == axis->extent,
				          "round %d", round);
			}
			cr_assert_leq(packed_bytes(&box.scale), plan.scale_bytes, "round %d", round);
			least = packed_bytes(&box.scale) > least ? packed_bytes(&box.scale) : least;
			offset = box.scale.offset;
			do {
				cr_assert_leq(offset + box.scale.bytes, view.scale_bytes, "round %d", round);
				for (uint64_t b = 0; b < box.scale.bytes; b++)
					written[offset + b]++;
			} while (box_runs_next(&box.scale, position, &offset));
		}
		cr_assert_eq(least, plan.scale_bytes, "round %d: of the largest box", round);
		for (uint64_t i = 0; i < view.scale_bytes; i++)
			cr_assert_eq(written[i], 1, "round %d, byte %d", round, (int)i);
		free(written);
		box_plan_deinit(&plan);
	}
}
