/* SPDX-License-Identifier: Apache-2.0 */
/* Fills engine explanations and turns them into the message that answers `explain`. */
#include "explanation.h"

#include <string.h>

/* Returns the time in ns that the device's own copy takes for bytes, read plus written, or 0 if it is
 * unknown. */
static uint64_t copy_ns(const struct engine_explanation *explanation, uint64_t bytes)
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

void explanation_add_tile_dim(struct engine_explanation *ret, const struct loop_nest *nest, int d, int64_t n)
{
	const int at = ret->tile.rank++;

	ret->tile.element = nest->element;
	ret->tile.n[at] = n;
	ret->tile.dst[at] = nest->dim[d].dst;
	ret->tile.src[at] = nest->dim[d].src;
}

/* ---- The message ------------------------------------------------------------------------------------- */

static void fill_list(struct int_list *ret, const int64_t *values, int n)
{
	ret->n = (uint32_t)n;
	memcpy(ret->v, values, (size_t)n * sizeof *values);
}

static void fill_layout(const struct engine_explanation *of, struct msg_explanation *e)
{
	e->element = of->element;
	fill_list(&e->shape, of->shape, of->rank);
	fill_list(&e->dst_strides, of->dst, of->rank);
	fill_list(&e->src_strides, of->src, of->rank);
	fill_list(&e->tile, of->tile.n, of->tile.rank);
	fill_list(&e->tile_dst_strides, of->tile.dst, of->tile.rank);
	fill_list(&e->tile_src_strides, of->tile.src, of->tile.rank);
	e->tile_element = of->tile.element;
	e->tile_row = of->tile.row_bytes;
	e->has |= F(explanation, tile_dst_strides) | F(explanation, tile_src_strides) |
	          F(explanation, tile_element) | F(explanation, tile_row);
}

static void fill_prediction(const struct engine_explanation *of, struct msg_explanation *e)
{
	e->predicted_ns = of->predicted_ns;
	e->copy_ns = copy_ns(of, of->bytes);
	if (e->predicted_ns)
		e->has |= F(explanation, predicted_ns) | F(explanation, copy_ns);
	else if (of->predicted > 0)
		e->has |= F(explanation, predicted_percent);
	e->predicted_percent = (uint64_t)(100 * of->predicted + 0.5);
	e->method = bytes_of(of->method);
	if (e->method.len > 0)
		e->has |= F(explanation, method);
}

void explanation_answer(const struct engine_explanation *of, const char *engine, struct msg_explanation *ret,
                        struct msg_rule rules[FAMILY_MOST_RULES])
{
	*ret = (struct msg_explanation){
		.family = bytes_of(family_names[of->family]),
		.engine = bytes_of(engine),
		.swizzle = bytes_of(of->swizzle),
		.grid = { .n = 1, .v = { of->grid } },
		.bytes = of->bytes,
		.slabs = of->n_subregions,
		.rules = { .items = rules, .n = (uint32_t)of->rules.n },
	};
	fill_layout(of, ret);
	fill_prediction(of, ret);
	for (int i = 0; i < of->rules.n; i++)
		rules[i] = (struct msg_rule){ .family = bytes_of(family_names[of->rules.rule[i].family]),
			                      .rule = bytes_of(of->rules.rule[i].text) };
}

void explanation_add_runs(struct engine_plan_runs runs, struct msg_explanation *ret)
{
	ret->runs = runs.n;
	ret->measured_runs = runs.n_measured;
	ret->measured_ns = runs.median_ns;
	ret->has |= F(explanation, runs) | F(explanation, measured_runs);
	if (runs.n_measured)
		ret->has |= F(explanation, measured_ns);
}
