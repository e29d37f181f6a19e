/* SPDX-License-Identifier: Apache-2.0 */
/* A client of "local:", and matrices in the memory of this process. Failures are Criterion's. */
#ifndef TESTS_UNIT_LOCAL_CLIENT_H
#define TESTS_UNIT_LOCAL_CLIENT_H

#include <stdint.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "client/local/door.h"
#include "client/tmaclient.h"

static inline tma_client *local_client(void)
{
	tma_client *client = tma_new();

	/* The program has the engine linked in, and no library is loaded. */
	cr_assert_not_null(tma_local_door());
	cr_assert_eq(tma_connect(client, "local:"), 0, "%s", tma_last_error(client));
	return client;
}

/* Returns a row-major matrix at an address of this process. */
static inline struct tma_tensor matrix(const void *data, int64_t rows, int64_t columns)
{
	return (struct tma_tensor){ .offset = (uint64_t)(uintptr_t)data,
		                    .dtype = TMA_UINT32,
		                    .rank = 2,
		                    .shape = { rows, columns } };
}

static inline uint32_t *numbers(int64_t n)
{
	uint32_t *ret = malloc((size_t)n * sizeof *ret);

	cr_assert_not_null(ret);
	for (int64_t i = 0; i < n; i++)
		ret[i] = (uint32_t)i * 2654435761u;
	return ret;
}

/* Transposes a matrix of rows x columns numbers and returns whether all of them are in their places. */
static inline bool transposes(tma_client *client, int64_t rows, int64_t columns)
{
	uint32_t *src = numbers(rows * columns), *dst = calloc((size_t)(rows * columns), sizeof *dst);
	const struct tma_tensor from = matrix(src, rows, columns), to = matrix(dst, columns, rows);
	bool is_right = tma_transpose(client, &to, &from, (const int[]){ 1, 0 }) == 0;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			is_right &= dst[c * rows + r] == src[r * columns + c];
	free(src);
	free(dst);
	return is_right;
}

#endif
