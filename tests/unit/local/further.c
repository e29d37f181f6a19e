/* SPDX-License-Identifier: Apache-2.0 */
/* Tests transforms with several destinations. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

TestSuite(local_further, .init = memory_open, .fini = memory_close);

static struct tma_tensor tensor(uint64_t address, enum tma_dtype dtype, int64_t rows, int64_t columns,
                                const int64_t *strides)
{
	return (struct tma_tensor){
		.offset = address, .dtype = dtype, .rank = 2, .shape = { rows, columns }, .strides = strides
	};
}

/* Each destination has strides of its own, and what lies between its rows is not changed. */
Test(local_further, of_random_layouts)
{
	uint64_t state = 7;

	for (int round = 0; round < 40; round++) {
		const int64_t rows = draw(&state, 1, 40), columns = draw(&state, 1, 40);
		const size_t n = (size_t)(rows * columns), n_dst = (size_t)draw(&state, 2, 5);
		uint32_t *numbers = malloc(n * sizeof *numbers), *got;
		int64_t strides[5][2];
		size_t bytes[5];
		struct tma_tensor to[5], from;

		for (size_t i = 0; i < n; i++)
			numbers[i] = (uint32_t)draw(&state, 1, INT32_MAX);
		from = tensor(memory_new(4 * n), TMA_UINT32, rows, columns, NULL);
		memory_put(from.offset, numbers, 4 * n);
		for (size_t i = 0; i < n_dst; i++) {
			strides[i][0] = rows + draw(&state, 0, 3);
			strides[i][1] = 1;
			bytes[i] = (size_t)(4 * strides[i][0] * columns);
			to[i] = tensor(memory_new(bytes[i]), TMA_UINT32, columns, rows, strides[i]);
		}
		const struct tma_transform t = { .dst = &to[0],
			                         .src = &from,
			                         .perm = (const int[]){ 1, 0 },
			                         .further_dst = &to[1],
			                         .n_further_dst = n_dst - 1 };

		cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
		cr_assert_eq(tma_last_result(client)->bytes, 8 * n * n_dst);
		for (size_t i = 0; i < n_dst; i++) {
			got = malloc(bytes[i]);
			memory_get(got, to[i].offset, bytes[i]);
			for (int64_t c = 0; c < columns; c++)
				for (int64_t r = 0; r < strides[i][0]; r++)
					cr_assert_eq(got[c * strides[i][0] + r],
					             r < rows ? numbers[r * columns + c] : 0xeeeeeeee);
			free(got);
		}
		free(numbers);
	}
}

/* The count of changes is that of one conversion, however many destinations there are. */
Test(local_further, convert_once)
{
	const float numbers[4] = { 1, 2.5f, 3, 1e9f };
	int16_t got[2][4];
	struct tma_tensor from = tensor(memory_new(16), TMA_FLOAT32, 2, 2, NULL);
	struct tma_tensor to[2];
	const struct tma_conversion conversion = { .cast = TMA_CAST_SATURATE };
	const struct tma_conversion exact = { .cast = TMA_CAST_EXACT };
	struct tma_transform t = { .dst = &to[0],
		                   .src = &from,
		                   .conversion = &conversion,
		                   .further_dst = &to[1],
		                   .n_further_dst = 1 };

	memory_put(from.offset, numbers, sizeof numbers);
	for (int i = 0; i < 2; i++)
		to[i] = tensor(memory_new(8), TMA_INT16, 2, 2, NULL);
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	for (int i = 0; i < 2; i++) {
		memory_get(got[i], to[i].offset, sizeof got[i]);
		cr_assert(got[i][0] == 1 && got[i][1] == 2 && got[i][2] == 3 && got[i][3] == INT16_MAX);
	}
	t.conversion = &exact;
	cr_assert_eq(tma_transform(client, &t), TMA_OUT_OF_RANGE);
	cr_assert_not_null(strstr(tma_last_error(client), "the values of 2 elements"), "%s",
	                   tma_last_error(client));
}

/* The splits of dst hold for all destinations: [5] becomes blocks of 2 in each, and the rest of the last
 * block is dropped. */
Test(local_further, with_splits_of_dst)
{
	const uint32_t numbers[6] = { 1, 2, 3, 4, 5, 6 };
	uint32_t got[5];
	const int64_t split[2] = { 0, 2 };
	struct tma_tensor from = tensor(memory_new(24), TMA_UINT32, 2, 3, NULL), to[3];
	const struct tma_transform t = { .dst = &to[0],
		                         .src = &from,
		                         .perm = (const int[]){ 1, 0 },
		                         .further_dst = &to[1],
		                         .n_further_dst = 2 };
	tma_ticket ticket;

	memory_put(from.offset, numbers, sizeof numbers);
	for (int i = 0; i < 3; i++)
		to[i] = (struct tma_tensor){
			.offset = memory_new(20), .dtype = TMA_UINT32, .rank = 1, .shape = { 5 }
		};
	to[0].split = split;
	to[0].n_split = 1;
	cr_assert_eq(tma_submit(client, &t, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	for (int i = 0; i < 3; i++) {
		memory_get(got, to[i].offset, sizeof got);
		cr_assert(got[0] == 1 && got[1] == 4 && got[2] == 2 && got[3] == 5 && got[4] == 3);
	}
}

/* All destinations are checked before the first is written. */
Test(local_further, are_refused_as_a_whole)
{
	const struct tma_tensor from = tensor(memory_new(16), TMA_UINT32, 2, 2, NULL);
	const uint64_t at = memory_new(64);
	const struct tma_tensor to = tensor(at, TMA_UINT32, 2, 2, NULL);
	struct tma_tensor further[2] = { tensor(at + 16, TMA_UINT32, 2, 2, NULL),
		                         tensor(at + 28, TMA_UINT32, 2, 2, NULL) };
	struct tma_transform t = { .dst = &to, .src = &from, .further_dst = further, .n_further_dst = 2 };
	unsigned char got[64];

	cr_assert_eq(tma_transform(client, &t), TMA_OVERLAP);
	cr_assert_not_null(strstr(tma_last_error(client), "further_dst[0]"), "%s", tma_last_error(client));
	further[1] = tensor(at + 32, TMA_UINT32, 1, 2, NULL);
	cr_assert_eq(tma_transform(client, &t), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "further_dst[1]: shape: "));
	further[1] = from;
	cr_assert_eq(tma_transform(client, &t), TMA_OVERLAP);
	memory_get(got, at, sizeof got);
	for (size_t i = 0; i < sizeof got; i++)
		cr_assert_eq(got[i], 0xee);
}
