/* SPDX-License-Identifier: Apache-2.0 */
/* Tests rounds: every random transform, staged through the smallest scratch memory that it allows and run
 * round by round, equals the oracle. Also tests how a few typical transforms are staged. */
#include "kernels/cuda/stage/staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/nest/narrow.h"
#include "tests/support/oracle.h"
#include "tests/support/walk.h"

static const struct plan_facts facts = { .threads = 132, .align = 1 };

/* Replays what the engine does, with memcpy for the copies and plain loops for the kernel. */
struct rehearsal {
	const struct staging *staging;
	uint8_t *scratch;
	uint8_t *dst; /* dst and src point to elements [0, ..., 0] */
	const uint8_t *src;
	struct tensor_extent brought;
};

static uint8_t *src_place(const struct rehearsal *r, uint64_t i, int64_t low)
{
	return (uint8_t *)staging_src_place(r->staging, (uint64_t)r->scratch, i, (uint64_t)(r->src + low));
}

/* Copies rows of a box between their places, the first of which is at `rows`, and a packed buffer; out: from
 * the buffer. */
static void copy_rows(const struct row_box *box, uint8_t *rows, uint8_t *packed, bool out)
{
	const uint64_t n = row_box_bytes(box) / box->row_bytes;

	for (uint64_t row = 0; row < n; row++, packed += box->row_bytes) {
		uint8_t *at = rows;
		uint64_t left = row;

		for (int d = 0; d < box->rank; d++) {
			at += left % box->axis[d].n * box->axis[d].stride;
			left /= box->axis[d].n;
		}
		memcpy(out ? at : packed, out ? packed : at, box->row_bytes);
	}
}

static void bring_rows(struct rehearsal *r, uint64_t i, const struct staging_round *round)
{
	cr_assert_leq(row_box_bytes(&round->src_box), r->staging->src_bytes);
	copy_rows(&round->src_box, (uint8_t *)r->src + round->reads.low, src_place(r, i, round->reads.low),
	          false);
}

static void bring_in(struct rehearsal *r, uint64_t i, const struct staging_round *round)
{
	int64_t low = round->reads.low, whole = transform_reads(r->staging->transform).low;

	if (r->staging->src == STAGING_ROUND)
		memcpy(src_place(r, i, low), r->src + low, (size_t)(round->reads.high - low));
	if (r->staging->src == STAGING_STRIPE)
		bring_rows(r, i, round);
	if (r->staging->src == STAGING_WHOLE)
		memcpy(src_place(r, i, whole) + (low - whole), r->src + low,
		       (size_t)(round->reads.high - low));
}

static void run_round(struct rehearsal *r, uint64_t i, const struct staging_round *round)
{
	const struct staging *s = r->staging;
	const uint8_t *src = r->src;
	uint8_t *dst = r->dst, *taken = NULL;

	bring_in(r, i, round);
	if (s->src == STAGING_ROUND)
		src = src_place(r, i, round->reads.low) - round->reads.low;
	if (s->src == STAGING_STRIPE)
		src = src_place(r, i, 0);
	if (s->src == STAGING_WHOLE)
		src = src_place(r, i, transform_reads(s->transform).low) - transform_reads(s->transform).low;
	if (s->run) {
		memcpy(dst + round->writes.low, src + round->reads.low,
		       (size_t)(round->writes.high - round->writes.low));
		return;
	}
	if (s->dst == STAGING_ROUND || s->dst == STAGING_STRIPE) {
		taken = (uint8_t *)staging_dst_place(s, (uint64_t)r->scratch, i,
		                                     (uint64_t)(dst + round->writes.low));
		dst = s->dst == STAGING_STRIPE ? taken - round->dst_offset : taken - round->writes.low;
	}
	walk_transform(&round->transform, dst + round->dst_offset, src);
	if (s->dst == STAGING_STRIPE) {
		cr_assert_leq(row_box_bytes(&round->dst_box), s->dst_bytes);
		copy_rows(&round->dst_box, r->dst + round->writes.low, taken, true);
	} else if (taken)
		memcpy(r->dst + round->writes.low, taken, (size_t)(round->writes.high - round->writes.low));
}

static void run_staged(const struct staging *s, uint8_t *dst, const uint8_t *src, const char *text)
{
	uint8_t *memory = aligned_alloc(STAGING_ALIGN, s->scratch_bytes + STAGING_ALIGN);
	struct rehearsal r = { .staging = s, .scratch = memory, .dst = dst, .src = src };

	memset(memory, 0x5c, s->scratch_bytes + STAGING_ALIGN);
	for (uint64_t i = 0; i < s->rounds; i++) {
		struct staging_round round;

		staging_round(s, i, &round);
		run_round(&r, i, &round);
	}
	for (size_t i = 0; i < STAGING_ALIGN; i++)
		cr_assert_eq(memory[s->scratch_bytes + i], 0x5c, "past the scratch memory: %s", text);
	free(memory);
}

Test(staging, rounds_are_the_transform)
{
	static char text[2000];
	uint64_t staged = 0, whole = 0, runs = 0;

	for (uint64_t seed = 1; seed <= 6000; seed++) {
		uint64_t state = seed;
		struct staging_limits limits = {
			.direct_bytes = (uint64_t)oracle_between(&state, 0, 64),
			.round_bytes = (uint64_t)oracle_between(&state, 1, 3000),
			.row_bytes = seed % 5 < 2 ? 0 : (uint64_t)oracle_between(&state, 1, 9),
			.tile_bytes = (uint64_t)oracle_between(&state, 1, 300),
			.tile_row_bytes = seed % 7 < 2 ? 0 : (uint64_t)oracle_between(&state, 1, 9),
			.scratch_bytes = (uint64_t)oracle_between(&state, 0, 60000),
		};
		struct oracle_case c;
		struct transform t;
		struct staging s;
		struct plan plan;
		struct error err;

		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert_eq(transform_init(&t, &c.spec, &err), 0, "%s: %s", text, err.message);
		cr_assert(oracle_case_prepare(&c));
		plan_init(&plan, &t, &facts);
		staging_init(&s, &t, &plan, (enum staging_place)(seed % 2),
		             (enum staging_place)(seed / 2 % 2), &limits);
		cr_assert_leq(s.scratch_bytes, limits.scratch_bytes, "%s", text);
		cr_assert_eq(s.rounds == 0, t.count == 0, "%s", text);
		staged += s.scratch_bytes > 0;
		whole += s.src == STAGING_WHOLE;
		runs += s.run;
		if (!s.run && !staging_is_needed(&s)) {
			oracle_case_free(&c);
			continue;
		}
		run_staged(&s, oracle_dst(&c) + c.dst_offset, oracle_src(&c) + c.src_offset, text);
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s", text);
		oracle_case_free(&c);
	}
	cr_assert_gt(staged, 1000);
	cr_assert_gt(whole, 60);
	cr_assert_gt(runs, 100);
}

/* Draws a transform that reads the source's axes in another order, with gaps between its rows. Some cases
 * crop one axis to a small part, and some have gaps between the destination's rows. */
static void draw_spec(uint64_t *state, struct transform_spec *ret, const char **ret_text)
{
	static char text[200];
	const int rank = (int)oracle_between(state, 2, 4);
	int64_t shape[4], strides[4], made[4], made_strides[4], stride = 1;
	const bool has_gaps = oracle_between(state, 0, 2) == 0;
	struct error err;

	*ret = (struct transform_spec){ .n_perm = rank, .n_before = rank, .n_after = rank };
	for (int d = 0; d < rank; d++) {
		const int other = (int)oracle_between(state, 0, d);

		shape[d] = oracle_between(state, 1, rank == 4 ? 9 : 24);
		ret->perm[d] = ret->perm[other];
		ret->perm[other] = d;
	}
	for (int d = rank - 1; d >= 0; d--) {
		strides[d] = stride;
		stride = stride * shape[d] + oracle_between(state, 0, 2) / 2 * oracle_between(state, 0, 3);
	}
	for (int d = 0; d < rank; d++)
		made[d] = shape[ret->perm[d]];
	const int cropped = (int)oracle_between(state, 0, 2 * rank - 1);
	if (cropped < rank) {
		ret->before[cropped] = -oracle_between(state, 0, made[cropped] - 1);
		made[cropped] += ret->before[cropped];
		ret->after[cropped] = -oracle_between(state, 0, made[cropped] - 1);
		made[cropped] += ret->after[cropped];
	}
	stride = 1;
	for (int d = rank - 1; d >= 0; d--) {
		made_strides[d] = stride;
		stride = stride * made[d] + (has_gaps ? oracle_between(state, 0, 3) : 0);
	}
	tensor_layout_init(&ret->src, DTYPE_INT16, rank, shape, strides, "src", &err);
	tensor_layout_init(&ret->dst, DTYPE_INT16, rank, made, made_strides, "dst", &err);
	snprintf(text, sizeof text, "[%ld %ld %ld %ld] by %ld %ld %ld %ld", shape[0], shape[1],
	         rank > 2 ? shape[2] : 1, rank > 3 ? shape[3] : 1, ret->perm[0], ret->perm[1],
	         rank > 2 ? ret->perm[2] : 2, rank > 3 ? ret->perm[3] : 3);
	*ret_text = text;
}

#define MOST_BYTES 65536

Test(staging, stripes_are_the_transform)
{
	static uint8_t src[MOST_BYTES], dst[MOST_BYTES], expected[MOST_BYTES];
	uint64_t stripes = 0, single = 0, tiles = 0, gaps = 0, state = 7;

	for (size_t i = 0; i < sizeof src; i++)
		src[i] = (uint8_t)oracle_random(&state);
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		const struct staging_limits limits = {
			.round_bytes = (uint64_t)oracle_between(&state, 1, 600),
			.row_bytes = (uint64_t)oracle_between(&state, 1, 16),
			.tile_bytes = (uint64_t)oracle_between(&state, 1, 200),
			.tile_row_bytes = (uint64_t)oracle_between(&state, 1, 16),
			.scratch_bytes = 1 << 20,
		};
		struct transform_spec spec;
		struct transform t;
		struct staging s;
		struct plan plan;
		struct error err;
		const char *text;

		draw_spec(&state, &spec, &text);
		cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", text, err.message);
		cr_assert_leq(t.src_extent.high, MOST_BYTES, "%s", text);
		cr_assert_leq(t.dst_extent.high, MOST_BYTES, "%s", text);
		plan_init(&plan, &t, &facts);
		staging_init(&s, &t, &plan, seed % 3 ? STAGING_ON_HOST : STAGING_ON_DEVICE, STAGING_ON_HOST,
		             &limits);
		stripes += s.src == STAGING_STRIPE;
		single += s.src == STAGING_STRIPE && s.rounds == 1;
		tiles += s.src == STAGING_STRIPE && s.dst == STAGING_STRIPE;
		gaps += s.src != STAGING_STRIPE && s.dst == STAGING_STRIPE;
		if (s.src != STAGING_STRIPE && s.dst != STAGING_STRIPE)
			continue;
		memset(dst, 0xa5, sizeof dst);
		memset(expected, 0xa5, sizeof expected);
		oracle_run(&spec, expected, src);
		run_staged(&s, dst, src, text);
		cr_assert_arr_eq(dst, expected, sizeof dst, "%s", text);
	}
	cr_assert_gt(stripes, 300, "%lu", (unsigned long)stripes);
	cr_assert_gt(single, 20, "%lu", (unsigned long)single);
	cr_assert_gt(tiles, 80, "%lu", (unsigned long)tiles);
	cr_assert_gt(gaps, 50, "%lu", (unsigned long)gaps);
}

/* ---- Ways ---------------------------------------------------------------------------------------------- */

struct way_row {
	char name[40];
	int64_t shape[3]; /* of the source, which is float32 */
	int64_t perm[3];
	int64_t pad; /* elements added after the first dimension */
	enum pad_mode mode;
	bool gaps; /* each row of the destination is followed by a gap of a page */
	bool crop; /* only a tenth of each row is read */
	uint64_t scratch;
	uint64_t row_bytes;
	enum staging_place dst, src;
	/* The result that is expected: */
	enum staging_way dst_way, src_way;
	bool run;
	uint64_t rounds;
	uint32_t slots;
};

#define MIB (UINT64_C(1) << 20)

ParameterizedTestParameters(staging, ways)
{
	static struct way_row rows[] = {
		{ .name = "on the device",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 2, 1, 0 },
		  .rounds = 1,
		  .slots = 1 },
		{ .name = "a run out",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 1, 2 },
		  .dst = STAGING_ON_HOST,
		  .run = true,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "a run over",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 1, 2 },
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_ROUND,
		  .run = true,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "a run over, no scratch",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 1, 2 },
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .rounds = 1,
		  .slots = 1 },
		{ .name = "small",
		  .shape = { 8, 8, 64 },
		  .perm = { 1, 0, 2 },
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .rounds = 1,
		  .slots = 1 },
		{ .name = "planes in order",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 2, 1 },
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_ROUND,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "planes in order, little scratch",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 2, 1 },
		  .scratch = 40 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_ROUND,
		  .rounds = 16,
		  .slots = 1 },
		{ .name = "transpose",
		  .shape = { 1, 8192, 8192 },
		  .perm = { 0, 2, 1 },
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_WHOLE,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "transpose, little scratch",
		  .shape = { 1, 8192, 8192 },
		  .perm = { 0, 2, 1 },
		  .scratch = 100 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "transpose, by rows",
		  .shape = { 1, 8192, 8192 },
		  .perm = { 0, 2, 1 },
		  .scratch = 100 * MIB,
		  .row_bytes = 1024,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_STRIPE,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "transpose, longer rows",
		  .shape = { 1, 8192, 32768 },
		  .perm = { 0, 2, 1 },
		  .scratch = 1024 * MIB,
		  .row_bytes = 2048,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_STRIPE,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "transpose, by tiles",
		  .shape = { 1, 16384, 16384 },
		  .perm = { 0, 2, 1 },
		  .scratch = 1024 * MIB,
		  .row_bytes = 8192,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_STRIPE,
		  .src_way = STAGING_STRIPE,
		  .rounds = 32,
		  .slots = 3 },
		{ .name = "transpose, little scratch for tiles",
		  .shape = { 1, 16384, 16384 },
		  .perm = { 0, 2, 1 },
		  .scratch = 150 * MIB,
		  .row_bytes = 1024,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_STRIPE,
		  .rounds = 64,
		  .slots = 3 },
		{ .name = "transpose, rows too short",
		  .shape = { 1, 8192, 8192 },
		  .perm = { 0, 2, 1 },
		  .scratch = 1024 * MIB,
		  .row_bytes = 4096,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_WHOLE,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "transpose in",
		  .shape = { 1, 8192, 8192 },
		  .perm = { 0, 2, 1 },
		  .scratch = 100 * MIB,
		  .src = STAGING_ON_HOST,
		  .src_way = STAGING_ROUND,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "a destination with gaps",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 1, 0, 2 },
		  .gaps = true,
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .rounds = 1,
		  .slots = 1 },
		{ .name = "a destination with gaps, by rows",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 1, 0, 2 },
		  .gaps = true,
		  .scratch = 1024 * MIB,
		  .row_bytes = 4096,
		  .dst = STAGING_ON_HOST,
		  .dst_way = STAGING_STRIPE,
		  .rounds = 16,
		  .slots = 3 },
		{ .name = "little of the source",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 1, 2 },
		  .crop = true,
		  .scratch = 1024 * MIB,
		  .src = STAGING_ON_HOST,
		  .rounds = 1,
		  .slots = 1 },
		{ .name = "little of the source, by rows",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 1, 2 },
		  .crop = true,
		  .scratch = 1024 * MIB,
		  .row_bytes = 256,
		  .src = STAGING_ON_HOST,
		  .src_way = STAGING_STRIPE,
		  .rounds = 2,
		  .slots = 2 },
		{ .name = "a border by rule",
		  .shape = { 64, 1024, 1024 },
		  .perm = { 0, 2, 1 },
		  .pad = 2,
		  .mode = PAD_MODE_EDGE,
		  .scratch = 1024 * MIB,
		  .dst = STAGING_ON_HOST,
		  .src = STAGING_ON_HOST,
		  .dst_way = STAGING_ROUND,
		  .src_way = STAGING_ROUND,
		  .rounds = 1,
		  .slots = 1 },
	};

	return cr_make_param_array(struct way_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct way_row *row, staging, ways)
{
	struct staging_limits limits = { .direct_bytes = 32 << 10,
		                         .round_bytes = 16 * MIB,
		                         .row_bytes = row->row_bytes,
		                         .tile_bytes = 32 * MIB,
		                         .tile_row_bytes = 8192,
		                         .scratch_bytes = row->scratch };
	struct transform_spec spec = {
		.n_perm = 3, .n_before = 3, .n_after = 3, .after = { row->pad }, .mode = row->mode
	};
	int64_t shape[3], strides[3];
	struct transform t;
	struct staging s;
	struct plan plan;
	struct error err;

	spec.after[2] = row->crop ? -row->shape[2] / 10 * 9 : 0;
	memcpy(spec.perm, row->perm, sizeof row->perm);
	for (int d = 0; d < 3; d++)
		shape[d] = row->shape[row->perm[d]] + spec.after[d];
	strides[2] = 1;
	strides[1] = shape[2] + (row->gaps ? 1024 : 0);
	strides[0] = strides[1] * shape[1];
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 3, row->shape, NULL, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 3, shape, strides, "dst", &err);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	plan_init(&plan, &t, &facts);
	staging_init(&s, &t, &plan, row->dst, row->src, &limits);
	cr_assert_eq(s.dst, row->dst_way, "%s: destination %d", row->name, s.dst);
	cr_assert_eq(s.src, row->src_way, "%s: source %d", row->name, s.src);
	cr_assert_eq(s.run, row->run, "%s", row->name);
	cr_assert_eq(s.rounds, row->rounds, "%s: %d rounds", row->name, (int)s.rounds);
	cr_assert_eq(s.slots, row->slots, "%s: %d slots", row->name, (int)s.slots);
	cr_assert_leq(s.scratch_bytes, row->scratch, "%s", row->name);
}
