/* SPDX-License-Identifier: Apache-2.0 */
#include "explanation.h"

uint64_t explanation_copy_ns(const struct engine_explanation *explanation, uint64_t bytes)
{
	const double rate = explanation->copy_bytes_per_ns;

	return rate > 0 ? (uint64_t)(explanation->copy_fixed_ns + (double)bytes / rate + 0.5) : 0;
}

void explanation_set_interior(struct engine_explanation *ret, const struct loop_nest *nest)
{
	ret->element = nest->element;
	ret->rank = nest->rank;
	for (int d = 0; d < nest->rank; d++) {
		ret->shape[d] = nest->dim[d].n;
		ret->dst[d] = nest->dim[d].dst;
		ret->src[d] = nest->dim[d].src;
	}
}
