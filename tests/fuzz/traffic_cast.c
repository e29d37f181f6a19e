/* SPDX-License-Identifier: Apache-2.0 */
/* Draws conversions. Their operands lie in quarters of the memory that tensors use as well. */
#include "traffic_cast.h"

#include <string.h>

#include "tests/support/conversion_case.h"
#include "traffic.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
	return oracle_random(random) % n;
}

static struct region_place place_of(uint64_t offset, uint64_t *random)
{
	return (struct region_place){ .region = traffic_region((unsigned)below(random, TRAFFIC_REGIONS)),
		                      .offset = TRAFFIC_SIZE / 4 * below(random, 4) + offset };
}

static struct msg_operand operand_of(const struct operand_spec *spec, const struct operand_case *operand,
                                     bool has_place, uint64_t *random)
{
	const struct tensor_layout *layout = &spec->layout;
	struct region_place place = place_of(operand->offset, random);
	struct msg_operand ret = { .has = F(operand, number),
		                   .number = { .kind = SCALAR_FLOATING, .re = operand->number } };

	if (spec->kind != OPERAND_TENSOR)
		return ret;
	ret = (struct msg_operand){ .has = F(operand, dtype) | F(operand, shape) | F(operand, strides),
		                    .region = place.region,
		                    .offset = place.offset,
		                    .dtype = layout->dtype,
		                    .shape.n = (uint32_t)layout->rank,
		                    .strides.n = (uint32_t)layout->rank };
	memcpy(ret.shape.v, layout->shape, sizeof layout->shape);
	memcpy(ret.strides.v, layout->stride, sizeof layout->stride);
	if (has_place)
		ret.has |= F(operand, region) | F(operand, offset);
	return ret;
}

void traffic_cast_transform(struct oracle_case *ret, struct msg_transform *params, bool has_places,
                            uint64_t *random)
{
	struct conversion_case c;
	const struct conversion_spec *spec = &c.c.spec.conversion;

	conversion_random_case(oracle_random(random), &c);
	*ret = c.c;
	params->has |= F(transform, cast);
	params->cast = spec->cast;
	if (spec->scale.kind)
		params->has |= F(transform, scale);
	if (spec->bias.kind)
		params->has |= F(transform, bias);
	params->scale = operand_of(&spec->scale, &c.scale, has_places, random);
	params->bias = operand_of(&spec->bias, &c.bias, has_places, random);
}

void traffic_cast_run(struct msg_plan_run *params, uint64_t *random)
{
	if (below(random, 4) == 0)
		params->has |= F(plan_run, scale);
	if (below(random, 4) == 0)
		params->has |= F(plan_run, bias);
	params->scale = place_of(below(random, 4096), random);
	params->bias = place_of(below(random, 4096), random);
}

void traffic_cast_blocks(struct msg_blocks *params, uint64_t *random)
{
	const struct operand_spec number = { .kind = OPERAND_NUMBER };
	const struct operand_spec tensor = {
		.kind = OPERAND_TENSOR,
		.layout = { .dtype = DTYPE_FLOAT32, .rank = 2, .shape = { 8, 1 }, .stride = { 1, 0 } }
	};
	const struct operand_case operand = { .number = 0.5, .offset = 64 };

	params->has |= F(blocks, cast);
	params->cast = (enum cast)below(random, CAST_COUNT);
	params->dst.dtype = (enum dtype)below(random, DTYPE_COUNT);
	if (below(random, 2))
		params->has |= F(blocks, scale);
	if (below(random, 2))
		params->has |= F(blocks, bias);
	params->scale = operand_of(below(random, 2) ? &number : &tensor, &operand, true, random);
	params->bias = operand_of(below(random, 2) ? &number : &tensor, &operand, true, random);
}
