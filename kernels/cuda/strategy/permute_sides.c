/* SPDX-License-Identifier: Apache-2.0 */
/* Which dimensions of a loop nest follow one another in memory, on either side. */
#include "permute_plan.h"

#include "proto/arithmetic.h"

#define MOST_GAP 64 /* bytes between runs of the source that are loaded as one */

int64_t permute_dst_stride(const struct loop_nest *nest, int d)
{
	return nest->dim[d].dst;
}

int64_t permute_src_stride(const struct loop_nest *nest, int d)
{
	return nest->dim[d].src;
}

/* Indices on one side: the source has fewer of a padded dimension. */
static uint64_t count_of(const struct loop_nest *nest, int d, bool is_src)
{
	return (uint64_t)(is_src ? nest->dim[d].source : nest->dim[d].n);
}

/* The dimension that continues where a run of this many bytes ends, or at most `gap` bytes later; -1: none.
 */
static int next_of(const struct loop_nest *nest, bool is_src, uint64_t run, uint64_t gap)
{
	permute_stride *const stride = is_src ? permute_src_stride : permute_dst_stride;
	int best = -1;

	for (int d = 0; d < nest->rank; d++) {
		const uint64_t step = (uint64_t)magnitude_i64(stride(nest, d));

		if (count_of(nest, d, is_src) > 1 && step >= run && step - run <= gap &&
		    (best < 0 || step < (uint64_t)magnitude_i64(stride(nest, best))))
			best = d;
	}
	return best;
}

/* The dimensions that follow one another, forwards or backwards, starting at the element. A gap between two
 * runs of the source is loaded with them if it is small, or small compared with the run. */
static struct permute_chain chain_of(const struct loop_nest *nest, bool is_src)
{
	permute_stride *const stride = is_src ? permute_src_stride : permute_dst_stride;
	struct permute_chain chain = { .split = -1 };
	uint64_t run = nest->element, gap = 0;
	int d;

	while ((d = next_of(nest, is_src, run, gap)) >= 0) {
		chain.dim[chain.n++] = d;
		run = (uint64_t)magnitude_i64(stride(nest, d)) * count_of(nest, d, is_src);
		gap = !is_src ? 0 : run / 8 > MOST_GAP ? run / 8 : MOST_GAP;
	}
	return chain;
}

void permute_sides_init(struct permute_sides *ret, const struct loop_nest *nest,
                        const struct plan_facts *facts, enum pad_mode mode)
{
	*ret = (struct permute_sides){ nest, facts, mode, chain_of(nest, false), chain_of(nest, true) };
}

struct permute_chain permute_chain_within(const struct permute_chain *all, const struct loop_nest *nest,
                                          const struct permute_box *box)
{
	struct permute_chain chain = { .split = -1 };

	for (int i = 0; i < all->n && chain.split < 0; i++) {
		const int d = all->dim[i];

		if (box->n[d] == 1)
			break;
		chain.dim[chain.n++] = d;
		if (box->n[d] < nest->dim[d].n)
			chain.split = d;
	}
	return chain;
}

bool permute_chain_has(const struct permute_chain *chain, int d)
{
	for (int i = 0; i < chain->n; i++)
		if (chain->dim[i] == d)
			return true;
	return false;
}

uint64_t permute_align(const struct loop_nest *nest, const struct permute_chain *run, permute_stride *stride,
                       uint64_t step, uint64_t base, uint64_t most)
{
	uint64_t align = gcd_u64(most, base);

	for (int d = 0; d < nest->rank; d++)
		if (!permute_chain_has(run, d))
			align = gcd_u64(align, (uint64_t)magnitude_i64(stride(nest, d)));
	return gcd_u64(align, step);
}
