/* SPDX-License-Identifier: Apache-2.0 */
#include "tma_rows.h"

#include <criterion/criterion.h>

void tma_row_plan(const struct tma_row *row, bool listed, struct transform *t, struct plan *ret)
{
	struct transform_spec spec = { .n_perm = row->straight ? -1 : row->rank,
		                       .n_before = row->rank,
		                       .n_after = row->rank,
		                       .mode = row->mode,
		                       .value = { .kind = SCALAR_UNSIGNED, .u = row->value } };
	unsigned bits = row->dst_phase | row->src_phase | 16u;
	struct plan_facts facts = { .threads = 132,
		                    .align = bits & -bits,
		                    .dst_phase = row->dst_phase,
		                    .src_phase = row->src_phase,
		                    .listed = listed };
	int64_t dst[6];
	struct error err;
	bool strided = false;

	for (int d = 0; d < row->rank; d++) {
		spec.perm[d] = row->straight ? d : row->perm[d];
		spec.before[d] = row->before[d];
		spec.after[d] = row->after[d];
		dst[d] = row->src[spec.perm[d]] + row->before[d] + row->after[d];
		strided |= row->strides[d] != 0;
	}
	cr_assert_eq(tensor_layout_init(&spec.src, row->dtype, row->rank, row->src,
	                                strided ? row->strides : NULL, "src", &err),
	             0);
	cr_assert_eq(tensor_layout_init(&spec.dst, row->dtype, row->rank, dst, NULL, "dst", &err), 0);
	cr_assert_eq(transform_init(t, &spec, &err), 0, "%s: %s", row->name, err.message);
	plan_init(ret, t, &facts);
}
