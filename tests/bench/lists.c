/* SPDX-License-Identifier: Apache-2.0 */
/* Makes index lists without repetition, and checks block by block with the oracle. */
#include "lists.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle.h"

#define POOL    2   /* blocks in the pool for each block that is picked */
#define SAMPLES 512 /* blocks checked */

int bench_list_init(const struct bench_row *row, const struct transform *transform, struct engine_blocks *ret,
                    int32_t **ret_index, struct error *err)
{
	uint64_t n = (uint64_t)row->blocks, limit = POOL * n, state = 3;
	uint64_t step = (uint64_t)transform->count * transform->element;
	int32_t *index = malloc(limit * sizeof(*index));

	if (!index)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (uint64_t i = 0; i < limit; i++) {
		uint64_t other = (uint64_t)oracle_between(&state, 0, (int64_t)i);

		index[i] = index[other];
		index[other] = (int32_t)i;
	}
	*ret = (struct engine_blocks){ .n = n,
		                       .layers = 1,
		                       .scatter = row->scatter,
		                       .index_bytes = sizeof(*index),
		                       .limit = limit,
		                       .index = index,
		                       .dst = { .step = step },
		                       .src = { .step = step } };
	*ret_index = index;
	return 0;
}

uint64_t bench_list_bytes(const struct engine_blocks *blocks)
{
	return blocks->limit * blocks->dst.step;
}

int bench_list_check(const struct engine_blocks *blocks, const struct transform_spec *spec,
                     const uint8_t *dst, const uint8_t *src, struct error *err)
{
	const int32_t *index = blocks->index;
	uint64_t state = 5;
	uint8_t *expected = malloc(blocks->dst.step);
	int r = expected ? 0 : error_set(err, STATUS_NO_MEMORY, "out of memory");

	for (int i = 0; i < SAMPLES && r == 0; i++) {
		uint64_t entry =
		    i ? (uint64_t)oracle_between(&state, 0, (int64_t)blocks->n - 1) : blocks->n - 1;
		uint64_t to = blocks->scatter ? (uint64_t)index[entry] : entry;
		uint64_t from = blocks->scatter ? entry : (uint64_t)index[entry];

		oracle_run(spec, expected, src + from * blocks->src.step);
		if (memcmp(dst + to * blocks->dst.step, expected, blocks->dst.step))
			r = error_set(err, STATUS_INTERNAL, "wrong bytes in block %" PRIu64, to);
	}
	free(expected);
	return r;
}
