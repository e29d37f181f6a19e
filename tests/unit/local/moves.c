/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every kind of transform in this process, and what is refused. */
#include <fenv.h>
#include <string.h>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "client.h"

Test(local_moves, matrices_small_and_large)
{
	tma_client *client = local_client();

	cr_assert(transposes(client, 1, 1));
	cr_assert(transposes(client, 3, 5));
	cr_assert(transposes(client, 64, 64));
	cr_assert(transposes(client, 777, 1023)); /* large enough to be moved by the engine's threads */
	cr_assert_str_eq(tma_last_result(client)->path, "tile_transpose");
	cr_assert_eq(tma_last_result(client)->bytes, 2 * 4 * 777 * 1023);
	tma_free(client);
}

Test(local_moves, pads)
{
	tma_client *client = local_client();
	const uint32_t src[4] = { 1, 2, 3, 4 };
	uint32_t dst[12] = { 0 };
	const uint32_t wanted[12] = { 9, 9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9 };
	const struct tma_tensor from = matrix(src, 2, 2), to = matrix(dst, 3, 4);

	cr_assert_eq(tma_pad(client, &to, &from, (const int64_t[]){ 1, 1 }, (const int64_t[]){ 0, 1 },
	                     TMA_PAD_CONSTANT, (struct tma_number){ .kind = TMA_NUMBER_UINT, .u = 9 }),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(dst, wanted, sizeof dst), 0);
	tma_free(client);
}

Test(local_moves, converts)
{
	tma_client *client = local_client();
	const float src[3] = { 0.5f, -1.25f, 300.75f };
	const float scales[3] = { 2, 4, 1 };
	int16_t dst[3] = { 0 };
	struct tma_tensor from = {
		.offset = (uintptr_t)src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 3 }
	};
	struct tma_tensor to = { .offset = (uintptr_t)dst, .dtype = TMA_INT16, .rank = 1, .shape = { 3 } };
	struct tma_tensor by = {
		.offset = (uintptr_t)scales, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 3 }
	};
	struct tma_conversion conversion = { .scale_tensor = &by };
	struct tma_transform transform = { .dst = &to, .src = &from, .conversion = &conversion };

	cr_assert_eq(tma_transform(client, &transform), 0, "%s", tma_last_error(client));
	cr_assert(dst[0] == 1 && dst[1] == -5 && dst[2] == 300);
	conversion = (struct tma_conversion){ .cast = TMA_CAST_EXACT };
	cr_assert_eq(tma_transform(client, &transform), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client),
	                 "cast: exact, but the values of 3 elements of float32 are not "
	                 "values of int16; dst has the nearest");
	tma_free(client);
}

/* Neither the rounding mode of the caller nor that of the thread that made the first move has an effect. */
Test(local_moves, rounds_as_it_should)
{
	const float src[2] = { 1.0f + 0x1p-12f, 1e-40f };
	uint16_t half[1] = { 0 };
	double wide[1] = { 0 };
	struct tma_tensor from = {
		.offset = (uintptr_t)src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 }
	};
	struct tma_tensor to = { .offset = (uintptr_t)half, .dtype = TMA_FLOAT16, .rank = 1, .shape = { 1 } };
	const struct tma_conversion conversion = { 0 };
	struct tma_transform transform = { .dst = &to, .src = &from, .conversion = &conversion };
	tma_client *client;

	fesetround(FE_UPWARD);
	client = local_client();
	cr_assert_eq(tma_transform(client, &transform), 0, "%s", tma_last_error(client));
	cr_assert_eq(fegetround(), FE_UPWARD);
	fesetround(FE_TONEAREST);
	cr_assert_eq(half[0], 0x3c00);
	from.offset += sizeof *src;
	to =
	    (struct tma_tensor){ .offset = (uintptr_t)wide, .dtype = TMA_FLOAT64, .rank = 1, .shape = { 1 } };
#ifdef __SSE__
	const unsigned before = _mm_getcsr();
	_mm_setcsr(before | 0x8040); /* FTZ and DAZ treat denormals as zeros; valgrind ignores both */
	const unsigned set = _mm_getcsr();
#endif
	cr_assert_eq(tma_transform(client, &transform), 0);
#ifdef __SSE__
	cr_assert_eq(_mm_getcsr() & 0x8040, set & 0x8040);
	_mm_setcsr(before);
#endif
	cr_assert_eq(wide[0], (double)src[1]);
	tma_free(client);
}

Test(local_moves, makes_scales)
{
	tma_client *client = local_client();
	const float src[4] = { 1, -8, 2, 4 };
	_Alignas(16) uint8_t dst[4] = { 0 };
	float scale[2] = { 0 };
	const int64_t block[1] = { 2 };
	struct tma_tensor from = {
		.offset = (uintptr_t)src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 }
	};
	struct tma_tensor to = {
		.offset = (uintptr_t)dst, .dtype = TMA_FLOAT8_E4M3FN, .rank = 1, .shape = { 4 }
	};
	struct tma_tensor by = {
		.offset = (uintptr_t)scale, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 2 }
	};
	struct tma_amax amax = { .block = block, .scale = &by };
	struct tma_conversion conversion = { .amax = &amax };

	cr_assert_eq(
	    tma_transform(client,
	                  &(struct tma_transform){ .dst = &to, .src = &from, .conversion = &conversion }),
	    0, "%s", tma_last_error(client));
	cr_assert(scale[0] == 8.0f / 448 && scale[1] == 4.0f / 448);
	tma_free(client);
}

/* Checks that an explanation, for either engine, counts the bytes of all parts. */
static void assert_explained(tma_client *client, const struct tma_transform *transform, const char *engine,
                             size_t bytes)
{
	tma_document *plan = NULL;

	cr_assert_eq(tma_explain_for(client, transform, engine, &plan), 0, "%s", tma_last_error(client));
	cr_assert_gt(tma_document_int(tma_document_find(plan, "parts")), 1);
	cr_assert_eq(tma_document_int(tma_document_find(plan, "bytes")), (int64_t)bytes, "%s", engine);
	tma_document_free(plan);
}

/* [5] seen as blocks of 2 becomes 3 blocks of 2; the last one is filled up with the value. */
Test(local_moves, incomplete_blocks)
{
	tma_client *client = local_client();
	const uint32_t src[5] = { 1, 2, 3, 4, 5 }, wanted[6] = { 1, 3, 5, 2, 4, 7 };
	uint32_t dst[6] = { 0 };
	const int64_t split[2] = { 0, 2 };
	struct tma_tensor from = { .offset = (uintptr_t)src, .dtype = TMA_UINT32, .rank = 1, .shape = { 5 } };
	const struct tma_tensor to = matrix(dst, 2, 3);
	struct tma_transform transform = { .dst = &to,
		                           .src = &from,
		                           .perm = (const int[]){ 1, 0 },
		                           .value = { .kind = TMA_NUMBER_UINT, .u = 7 } };

	from.split = split;
	from.n_split = 1;
	cr_assert_eq(tma_transform(client, &transform), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(dst, wanted, sizeof dst), 0);
	assert_explained(client, &transform, "cpu", sizeof src + sizeof dst);
	assert_explained(client, &transform, "cuda", sizeof src + sizeof dst);
	tma_free(client);
}

Test(local_moves, refuses)
{
	tma_client *client = local_client();
	uint32_t *data = numbers(64);
	const struct tma_tensor all = matrix(data, 8, 4), part = matrix(data + 16, 8, 4),
				other = matrix(data + 32, 4, 4);

	cr_assert_eq(tma_copy(client, &all, &part), TMA_OVERLAP);
	cr_assert_eq(tma_copy(client, &all, &other), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_last_status(client), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_transpose(client, &all, &part, (const int[]){ 0, 0 }), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_last_result(client)->status, TMA_INVALID_ARGUMENT);
	cr_assert(transposes(client, 5, 7));
	free(data);
	tma_free(client);
}
