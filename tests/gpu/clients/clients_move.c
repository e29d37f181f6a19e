/* SPDX-License-Identifier: Apache-2.0 */
/* Moves data by the service and checks the result. */
#include "clients_move.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle.h"

#define PAD_VALUE 7

const struct move moves[] = {
	{ "bytes at odd places", TMA_UINT8, { 61, 83 }, 13, 7, { 1, 0 }, { 0, 0 }, { 0, 0 } },
	{ "halves, transposed", TMA_FLOAT16, { 64, 96 }, 0, 0, { 1, 0 }, { 0, 0 }, { 0, 0 } },
	{ "floats, transposed at 16 bytes", TMA_FLOAT32, { 48, 36 }, 32, 16, { 1, 0 }, { 0, 0 }, { 0, 0 } },
	{ "floats, padded", TMA_FLOAT32, { 40, 64 }, 0, 0, { 0, 1 }, { 1, 4 }, { 2, 4 } },
	{ "doubles, transposed and padded", TMA_FLOAT64, { 31, 23 }, 8, 24, { 1, 0 }, { 2, 1 }, { 0, 3 } },
	{ "wide elements, cropped", TMA_COMPLEX128, { 24, 20 }, 0, 16, { 0, 1 }, { -2, -1 }, { -1, 0 } },
	{ "a plain copy", TMA_BFLOAT16, { 64, 64 }, 0, 0, { 0, 1 }, { 0, 0 }, { 0, 0 } },
};
const size_t n_moves = sizeof moves / sizeof *moves;

static void dst_shape(const struct move *move, int64_t ret[2])
{
	for (int d = 0; d < 2; d++)
		ret[d] = move->before[d] + move->shape[move->perm[d]] + move->after[d];
}

size_t move_room(const struct move *move)
{
	size_t element = tma_dtype_size(move->dtype), src, dst;
	int64_t shape[2];

	dst_shape(move, shape);
	src = move->src_bytes + (size_t)(move->shape[0] * move->shape[1]) * element;
	dst = move->dst_bytes + (size_t)(shape[0] * shape[1]) * element;
	return (src > dst ? src : dst) + 64;
}

struct move move_scaled(const struct move *move, int64_t scale)
{
	struct move scaled = *move;

	scaled.shape[0] *= scale;
	scaled.shape[1] *= scale;
	return scaled;
}

uint8_t *move_random(size_t size, uint64_t *state)
{
	uint8_t *data = malloc(size);
	size_t i = 0;

	require(data, "out of memory for %zu bytes", size);
	for (; i + 8 <= size; i += 8) {
		uint64_t word = oracle_random(state);

		memcpy(data + i, &word, 8);
	}
	for (; i < size; i++)
		data[i] = (uint8_t)oracle_random(state);
	return data;
}

/* to and from point to elements [0, 0]. */
static void expect(const struct move *move, uint8_t *to, const uint8_t *from)
{
	struct tma_number value = { .kind = TMA_NUMBER_INT, .i = PAD_VALUE };
	size_t element = tma_dtype_size(move->dtype);
	uint8_t pad[16];
	int64_t shape[2];

	dst_shape(move, shape);
	tma_number_encode(move->dtype, &value, pad);
	for (int64_t i = 0; i < shape[0]; i++) {
		for (int64_t j = 0; j < shape[1]; j++, to += element) {
			int64_t at[2], of[2] = { i - move->before[0], j - move->before[1] };

			at[move->perm[0]] = of[0];
			at[move->perm[1]] = of[1];
			if (at[0] < 0 || at[0] >= move->shape[0] || at[1] < 0 || at[1] >= move->shape[1])
				memcpy(to, pad, element);
			else
				memcpy(to, from + (size_t)(at[0] * move->shape[1] + at[1]) * element,
				       element);
		}
	}
}

static void compare(const struct store *store, const uint8_t *expected, uint8_t *found,
                    const struct move *move, const char *what)
{
	store_read(store, found);
	if (memcmp(found, expected, store->size) == 0)
		return;
	for (size_t i = 0; i < store->size; i++)
		require(found[i] == expected[i],
		        "%s: %s differs at byte %zu, %+" PRId64 " from its region's start: %#x, not %#x",
		        move->name, what, i, (int64_t)(i - store->at), found[i], expected[i]);
}

void move_request(struct move_request *ret, const struct store *dst, const struct store *src,
                  const struct move *move)
{
	*ret = (struct move_request){
		.dst = { .region = dst->region, .offset = move->dst_bytes, .dtype = move->dtype, .rank = 2 },
		.src = { .region = src->region, .offset = move->src_bytes, .dtype = move->dtype, .rank = 2 },
		.transform = { .dst = &ret->dst,
		               .src = &ret->src,
		               .perm = move->perm,
		               .before = move->before,
		               .after = move->after,
		               .value = { .kind = TMA_NUMBER_INT, .i = PAD_VALUE } },
	};
	dst_shape(move, ret->dst.shape);
	memcpy(ret->src.shape, move->shape, sizeof move->shape);
}

void move_check(tma_client *client, struct store *dst, struct store *src, const struct move *move,
                uint64_t *state)
{
	uint8_t *from = move_random(src->size, state), *to = move_random(dst->size, state);
	uint8_t *found = malloc(src->size > dst->size ? src->size : dst->size);
	struct move_request request;

	require(found, "out of memory");
	store_write(src, from);
	store_write(dst, to);
	move_request(&request, dst, src, move);
	require(tma_transform(client, &request.transform) == 0, "%s: %s", move->name, tma_last_error(client));
	expect(move, to + dst->at + move->dst_bytes, from + src->at + move->src_bytes);
	compare(dst, to, found, move, "the destination");
	compare(src, from, found, move, "the source");
	free(from);
	free(to);
	free(found);
}
