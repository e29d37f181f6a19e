/* SPDX-License-Identifier: Apache-2.0 */
/* Tests rows drawn from a seed: they are the same each time, keep to the limits asked for, and are of every
 * kind. */
#include "tests/bench/random_rows.h"

#include <criterion/criterion.h>
#include <string.h>

#define N 4000

static const struct random_rows all = { .seed = 7, .least = 4 << 10, .most = UINT64_C(2) << 30 };

static uint64_t bytes_of(const struct bench_row *row)
{
	uint64_t bytes = dtype_size(row->dtype);

	for (int d = 0; d < row->rank; d++)
		bytes *= (uint64_t)row->shape[d];
	return bytes;
}

static bool are_alike(const struct random_rows *a, const struct random_rows *b, uint64_t i)
{
	struct random_row x, y;

	random_row_draw(a, i, &x);
	random_row_draw(b, i, &y);
	return !strcmp(x.what, y.what) && x.row.dtype == y.row.dtype &&
	       !memcmp(x.row.shape, y.row.shape, sizeof(x.row.shape)) && x.row.value == y.row.value;
}

Test(random_rows, a_seed_repeats_and_another_does_not)
{
	const struct random_rows again = all, other = { .seed = 8, .least = all.least, .most = all.most };
	int alike = 0;

	for (uint64_t i = 0; i < 200; i++) {
		cr_expect(are_alike(&all, &again, i), "row %d", (int)i);
		alike += are_alike(&all, &other, i);
	}
	cr_expect_lt(alike, 5, "%d of 200 rows are alike", alike);
}

/* A seed that is quoted stands for the same rows on every machine. */
Test(random_rows, the_first_of_seed_7)
{
	static const struct bench_row expected[] = {
		ROW("permute 1,0,2", FLOAT16, 3, DIMS(262144, 5, 31), .perm = { 1, 0, 2 }),
		ROW("gap 53 0,1", UINT8, 2, DIMS(12, 2039), .perm = { 0, 1 }),
		ROW("permute 3,2,4,0,1", UINT8, 5, DIMS(13, 1021, 3, 13, 400), .perm = { 3, 2, 4, 0, 1 }),
	};

	for (uint64_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		struct random_row drawn;

		random_row_draw(&all, i, &drawn);
		cr_expect_str_eq(drawn.row.what, expected[i].what);
		cr_expect_eq(drawn.row.dtype, expected[i].dtype, "%s", drawn.what);
		cr_expect_arr_eq(drawn.row.shape, expected[i].shape, sizeof(drawn.row.shape), "%s",
		                 drawn.what);
		cr_expect_arr_eq(drawn.row.perm, expected[i].perm, sizeof(drawn.row.perm), "%s", drawn.what);
	}
}

Test(random_rows, each_is_a_transform_of_the_size_asked_for)
{
	static const struct random_rows asked[] = {
		{ .seed = 1, .least = 4 << 10, .most = 8 << 10 },
		{ .seed = 2, .least = 1 << 20, .most = 16 << 20 },
		{ .seed = 3, .least = 64 << 20, .most = UINT64_C(2) << 30 },
	};

	for (size_t k = 0; k < sizeof(asked) / sizeof(*asked); k++)
		for (uint64_t i = 0; i < 500; i++) {
			struct transform_spec spec;
			struct transform transform;
			struct random_row row;
			struct error err;
			int64_t first;

			random_row_draw(&asked[k], i, &row);
			cr_assert(bytes_of(&row.row) >= asked[k].least && bytes_of(&row.row) <= asked[k].most,
			          "%s", row.what);
			cr_assert_eq(bench_row_spec(&row.row, &spec, &first, &err), 0, "%s: %s", row.what,
			             err.message);
			cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", row.what,
			             err.message);
			cr_assert_geq(first + spec.src.stride[0], 0, "%s", row.what);
		}
}

Test(random_rows, every_kind_comes_up)
{
	int rank[BENCH_MAX_RANK + 1] = { 0 }, element[17] = { 0 }, mode[PAD_MODE_COUNT] = { 0 };
	int permuted = 0, padded = 0, cropped = 0, gaps = 0, inner = 0, outer = 0, sevens = 0;
	int powers = 0, odd = 0;

	for (uint64_t i = 0; i < N; i++) {
		struct random_row drawn;
		const struct bench_row *row = &drawn.row;
		bool is_power = true, is_odd = true, pads = false, crops = false, moves = false;

		random_row_draw(&all, i, &drawn);
		rank[row->rank]++;
		element[dtype_size(row->dtype)]++;
		for (int d = 0; d < row->rank; d++) {
			is_power = is_power && !(row->shape[d] & (row->shape[d] - 1));
			is_odd = is_odd && (row->shape[d] & 1);
			pads = pads || row->before[d] > 0 || row->after[d] > 0;
			crops = crops || row->before[d] < 0 || row->after[d] < 0;
			moves = moves || row->perm[d] != d;
			cr_assert_gt(row->shape[d], 1, "%s", row->what);
		}
		cr_assert(!pads || !crops, "%s", row->what);
		mode[row->mode] += pads;
		permuted += moves && !pads && !crops && !row->gap && !row->reversed;
		padded += pads;
		cropped += crops;
		gaps += row->gap > 0;
		inner += row->reversed & 1;
		outer += row->reversed > 1;
		sevens += row->value == 7;
		powers += is_power;
		odd += is_odd;
	}
	for (int r = 2; r <= 8; r++)
		cr_expect_gt(rank[r], N / 100, "rank %d: %d", r, rank[r]);
	for (int e = 1; e <= 16; e *= 2)
		cr_expect_gt(element[e], N / 25, "%d bytes: %d", e, element[e]);
	for (int m = 0; m < PAD_MODE_COUNT; m++)
		cr_expect_gt(mode[m], N / 400, "%s: %d", pad_mode_names[m], mode[m]);
	cr_expect(permuted > N / 2 && permuted < 3 * N / 4, "permuted: %d", permuted);
	cr_expect(padded > N / 10 && cropped > N / 20 && gaps > N / 40, "%d, %d, %d", padded, cropped, gaps);
	cr_expect(inner > N / 40 && outer > N / 100 && sevens > N / 100, "%d, %d, %d", inner, outer, sevens);
	cr_expect(powers > N / 10 && odd > N / 20, "%d, %d", powers, odd);
}
