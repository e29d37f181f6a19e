/* SPDX-License-Identifier: Apache-2.0 */
/* How a row becomes a request, and how its result is checked. */
#include "row.h"

#include <string.h>

#include "proto/scalar.h"
#include "tests/support/oracle.h"

#define SAMPLES 100000
#define NEAR    9 /* elements from an end */

int bench_row_spec(const struct bench_row *row, struct transform_spec *ret, int64_t *ret_first,
                   struct error *err)
{
	int64_t stride[BENCH_MAX_RANK], shape[BENCH_MAX_RANK], step = 1;
	int inner = row->rank - 1, r;
	bool moved = false;

	*ret = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	ret->value.u = row->value;
	for (int d = inner; d >= 0; d--) {
		stride[d] = step;
		step = step * row->shape[d] + (d == inner ? row->gap : 0);
		moved = moved || row->perm[d];
	}
	*ret_first = row->offset;
	if (row->repeated)
		stride[0] = 0;
	for (int d = 0; d < row->rank; d++)
		if (row->reversed >> (inner - d) & 1) {
			*ret_first += (row->shape[d] - 1) * stride[d];
			stride[d] = -stride[d];
		}
	for (int d = 0; d < row->rank; d++) {
		ret->perm[d] = moved ? row->perm[d] : d;
		ret->before[d] = row->before[d];
		ret->after[d] = row->after[d];
		shape[d] = row->shape[ret->perm[d]] + row->before[d] + row->after[d];
	}
	r = tensor_layout_init(&ret->src, row->dtype, row->rank, row->shape, stride, "src", err);
	if (r < 0)
		return r;
	return tensor_layout_init(&ret->dst, row->dtype, row->rank, shape, NULL, "dst", err);
}

int bench_row_check(const struct bench_row *row, const struct transform_spec *spec, const uint8_t *dst,
                    const uint8_t *src, struct error *err)
{
	uint8_t value[TENSOR_MAX_ELEMENT];
	uint32_t size = dtype_size(row->dtype);
	uint64_t state = 7;
	int r = scalar_encode(&spec->value, row->dtype, value, "value", err);

	if (r < 0)
		return r;
	for (int i = 0; i < SAMPLES; i++) {
		int64_t index[BENCH_MAX_RANK], to, from;

		for (int d = 0; d < row->rank; d++) {
			int64_t high = spec->dst.shape[d] - 1, near = high < NEAR ? high : NEAR;

			if (i % 4 != 0)
				index[d] = oracle_between(&state, 0, high);
			else if (oracle_between(&state, 0, 1))
				index[d] = oracle_between(&state, 0, near);
			else
				index[d] = high - oracle_between(&state, 0, near);
		}
		bool read = oracle_element(spec, index, &to, &from);
		if (memcmp(dst + to, read ? src + from : value, size)) {
			char text[64];

			return error_set(err, STATUS_INTERNAL, "wrong bytes at %s of the destination",
			                 tensor_shape_text(row->rank, index, text, sizeof text));
		}
	}
	return 0;
}
