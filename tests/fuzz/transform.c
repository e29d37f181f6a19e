/* SPDX-License-Identifier: Apache-2.0 */
/* Checks validation, canonicalization and planning of transforms, and the CPU engine on small ones. What is
 * accepted stays inside its regions and writes no byte twice; this is checked with 128-bit arithmetic and
 * element by element. Subregions and parts write every element once. A small transform moves or converts
 * exactly the bytes that the oracles of tests/support/ do. */
#include "kernels/transform/transform.h"

#include <string.h>

#include "fuzz.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/split.h"
#include "transform_request.h"
#include "transform_run.h"

#define MOST_ELEMENTS 4096           /* elements of a small transform */
#define MOST_BYTES    RUN_MOST_BYTES /* bytes of its regions */
#define MOST_PAD      1024
#define MOST_SLABS    4096
#define MOST_PLANS    8 /* plans of parts */

/* ---- What has to hold --------------------------------------------------------------------------------- */

struct span {
	__int128 low, high;
};

static struct span span_of(const struct tensor_layout *layout)
{
	struct span span = { 0, dtype_size(layout->dtype) };

	for (int d = 0; d < layout->rank; d++) {
		__int128 reach =
		    (__int128)(layout->shape[d] - 1) * layout->stride[d] * dtype_size(layout->dtype);

		if (layout->shape[d] == 0)
			return (struct span){ 0, 0 };
		*(reach < 0 ? &span.low : &span.high) += reach;
	}
	return span;
}

static void check_inside(const struct tensor_layout *layout, uint64_t offset, uint64_t size, const char *name)
{
	struct span span = span_of(layout);

	if (span.high > span.low)
		fuzz_check(span.low + offset >= 0 && span.high + offset <= size, "%s leaves its region",
		           name);
	else
		fuzz_check(offset <= size, "%s starts outside of its region", name);
}

/* Marks in map the bytes of every element, where element [0, ..., 0] is at byte `at`. Returns whether any was
 * marked before. */
static bool mark(const struct tensor_layout *layout, uint8_t *map, int64_t at, uint8_t bit)
{
	int64_t index[TENSOR_MAX_RANK] = { 0 }, element = dtype_size(layout->dtype);
	bool met = false;
	int d;

	if (tensor_count(layout) == 0)
		return false;
	do {
		int64_t where = at;

		for (d = 0; d < layout->rank; d++)
			where += index[d] * layout->stride[d] * element;
		for (int64_t i = 0; i < element; i++) {
			met |= map[where + i] != 0;
			map[where + i] |= bit;
		}
		for (d = layout->rank - 1; d >= 0 && ++index[d] == layout->shape[d]; d--)
			index[d] = 0;
	} while (d >= 0);
	return met;
}

static bool is_small(const struct tensor_layout *layout)
{
	struct span span = span_of(layout);

	return tensor_count(layout) <= MOST_ELEMENTS && span.high - span.low <= MOST_BYTES;
}

/* Returns whether an element of the destination is written twice. */
static bool overlaps_itself(const struct tensor_layout *dst)
{
	static uint8_t map[MOST_BYTES];

	memset(map, 0, sizeof map);
	return mark(dst, map, (int64_t)-span_of(dst).low, 1);
}

/* Returns whether the tensors share bytes, where src starts distance bytes after dst. */
static bool overlaps(const struct tensor_layout *dst, const struct tensor_layout *src, int64_t distance)
{
	static uint8_t map[4 * MOST_BYTES], other[4 * MOST_BYTES];
	struct span a = span_of(dst), b = span_of(src);
	int64_t low = (int64_t)(a.low < b.low + distance ? a.low : b.low + distance);
	bool met = false;

	if (a.high - low > (int64_t)sizeof map || b.high + distance - low > (int64_t)sizeof map)
		return false;
	memset(map, 0, sizeof map);
	memset(other, 0, sizeof other);
	mark(dst, map, -low, 1);
	mark(src, other, distance - low, 1);
	for (size_t i = 0; i < sizeof map; i++)
		met |= map[i] & other[i];
	return met;
}

static void check_refusal(const struct transform_spec *spec, const struct error *err)
{
	fuzz_check_error(err);
	if (err->status == STATUS_OVERLAP && !strstr(err->message, "too complex") && is_small(&spec->dst))
		fuzz_check(overlaps_itself(&spec->dst), "%s", err->message);
}

static void check_slab(const struct transform *t, const struct loop_nest *nest)
{
	__int128 low[2] = { nest->dst_offset, nest->src_offset }, high[2] = { low[0], low[1] };

	for (int d = 0; d < nest->rank; d++) {
		const int64_t strides[2] = { nest->dim[d].dst, nest->dim[d].src };

		fuzz_check(nest->dim[d].n > 0 && nest->dim[d].dst > 0);
		for (int i = 0; i < 2; i++) {
			__int128 reach = (__int128)(nest->dim[d].n - 1) * strides[i];

			*(reach < 0 ? &low[i] : &high[i]) += reach;
		}
	}
	fuzz_check(low[0] >= t->dst_extent.low && high[0] + nest->element <= t->dst_extent.high,
	           "dst of a slab");
	if (!nest->fill)
		fuzz_check(low[1] >= t->src_extent.low &&
		               high[1] + (nest->converted ? nest->converted : nest->element) <=
		                   t->src_extent.high,
		           "src of a slab");
}

static void check_slabs(const struct transform *t, uint32_t align)
{
	struct subregions subregions;
	struct loop_nest nest;
	__int128 bytes = 0;

	subregions_init(&subregions, t);
	if (subregions.n > MOST_SLABS)
		return;
	for (uint64_t i = 0; i < subregions.n; i++) {
		subregions_get(&subregions, i, align, &nest);
		check_slab(t, &nest);
		bytes += (__int128)loop_nest_count(&nest) * nest.element;
	}
	fuzz_check(bytes == (__int128)t->count * t->element, "slabs of %lld bytes", (long long)bytes);
}

static void check_explanation(const struct engine_explanation *of)
{
	fuzz_check((unsigned)of->family < FAMILY_COUNT);
	fuzz_check(of->rules.n >= 0 && of->rules.n <= FAMILY_MOST_RULES);
	fuzz_check(of->grid > 0, "%lld", (long long)of->grid);
	for (int i = 0; i < of->rules.n; i++) {
		const struct family_rule *rule = &of->rules.rule[i];

		fuzz_check(*rule->text && strnlen(rule->text, sizeof rule->text) < sizeof rule->text);
	}
}

static void check_plan(const struct transform *t, const struct plan_facts *facts)
{
	struct engine_explanation explanation;
	struct plan plan;

	plan_init(&plan, t, facts);
	plan_explain(&explanation, &plan, t, facts);
	check_explanation(&explanation);
}

/* ---- Running small ones ------------------------------------------------------------------------------- */

static bool operand_can_be_placed(const struct transform_request_operand *operand)
{
	return operand->kind != OPERAND_TENSOR || (uint64_t)operand->tensor.size <= MOST_BYTES;
}

static bool can_run(const struct transform_request *q, const struct split *split)
{
	int64_t count = 1;

	if ((uint64_t)q->dst.size > MOST_BYTES || (uint64_t)q->src.size > MOST_BYTES ||
	    !is_small(&split->dst) || !is_small(&split->src) || !operand_can_be_placed(&q->scale) ||
	    !operand_can_be_placed(&q->bias))
		return false;
	for (int d = 0; d < split->spec.dst.rank; d++)
		if (__builtin_mul_overflow(count, split->spec.dst.shape[d], &count) || count > MOST_ELEMENTS)
			return false;
	for (int d = 0; d < split->spec.dst.rank; d++)
		if ((q->n_before >= 0 && q->before[d] > MOST_PAD) ||
		    (q->n_after >= 0 && q->after[d] > MOST_PAD))
			return false;
	return true;
}

/* ---- The target --------------------------------------------------------------------------------------- */

static int layout_of(struct tensor_layout *ret, const struct transform_request_tensor *t, const char *name,
                     struct error *err)
{
	return tensor_layout_init(ret, (enum dtype)t->dtype, t->rank, t->shape,
	                          t->strided ? t->strides : NULL, name, err);
}

static int operand_of(struct operand_spec *ret, const struct transform_request_operand *operand,
                      const char *name, struct error *err)
{
	ret->kind = (enum operand_kind)operand->kind;
	return ret->kind == OPERAND_TENSOR ? layout_of(&ret->layout, &operand->tensor, name, err) : 0;
}

static int spec_of(struct transform_spec *ret, const struct transform_request *q, struct error *err)
{
	int r = layout_of(&ret->dst, &q->dst, "dst", err);

	if (r == 0)
		r = layout_of(&ret->src, &q->src, "src", err);
	ret->n_perm = q->n_perm;
	ret->n_before = q->n_before;
	ret->n_after = q->n_after;
	memcpy(ret->perm, q->perm, sizeof ret->perm);
	memcpy(ret->before, q->before, sizeof ret->before);
	memcpy(ret->after, q->after, sizeof ret->after);
	ret->mode = (enum pad_mode)q->mode;
	ret->value = q->value;
	ret->conversion.is_given = q->cast > 0;
	ret->conversion.cast = q->cast ? (enum cast)(q->cast - 1) : CAST_SATURATE;
	if (r == 0)
		r = operand_of(&ret->conversion.scale, &q->scale, "scale", err);
	if (r == 0)
		r = operand_of(&ret->conversion.bias, &q->bias, "bias", err);
	return r;
}

/* Checks that the parts lie within their tensors and together write as many elements as there are. */
static void check_parts(const struct split *split, struct transform *parts)
{
	const struct span dst = span_of(&split->dst), src = span_of(&split->src);
	struct split_part part;
	struct error err;
	__int128 count = 0;

	fuzz_check(split->n_parts >= 1 && split->n_parts <= SPLIT_MAX_PARTS);
	for (int i = 0; i < split->n_parts; i++) {
		const struct transform *t = &parts[i];

		split_get(split, i, &part);
		fuzz_check(transform_init(&parts[i], &part.spec, &err) == 0, "part %d: %s", i, err.message);
		count += t->count;
		if (t->count > 0)
			fuzz_check(part.dst_offset + (__int128)t->dst_extent.low >= dst.low &&
			               part.dst_offset + (__int128)t->dst_extent.high <= dst.high,
			           "part %d of dst", i);
		if (t->src_extent.high > t->src_extent.low)
			fuzz_check(part.src_offset + (__int128)t->src_extent.low >= src.low &&
			               part.src_offset + (__int128)t->src_extent.high <= src.high,
			           "part %d of src", i);
	}
	fuzz_check(count == tensor_count(&split->dst), "parts of %lld elements", (long long)count);
}

/* Checks that the operands lie within their regions. */
static bool check_operands(const struct transform_request *q, const struct conversion *conversion)
{
	const struct operand *const operands[] = { &conversion->scale, &conversion->bias };
	const struct transform_request_operand *const given[] = { &q->scale, &q->bias };
	struct error err;

	for (int i = 0; i < 2 && conversion->is; i++) {
		const struct transform_request_tensor *t = &given[i]->tensor;

		if (operands[i]->kind != OPERAND_TENSOR)
			continue;
		if (tensor_check_range(operands[i]->extent, (uint64_t)t->offset, (uint64_t)t->size, "scale",
		                       &err) < 0) {
			fuzz_check_error(&err);
			return false;
		}
		check_inside(&operands[i]->layout, (uint64_t)t->offset, (uint64_t)t->size, "an operand");
	}
	return true;
}

static void try_places(const struct transform_request *q, const struct transform_spec *spec,
                       const struct split *split)
{
	static struct transform parts[SPLIT_MAX_PARTS];
	struct tensor_place dst = { .memory = { 1, 1 },
		                    .offset = (uint64_t)q->dst.offset,
		                    .size = (uint64_t)q->dst.size };
	struct tensor_place src = { .memory = { 1, q->same_memory ? 1 : 2 },
		                    .offset = (uint64_t)q->src.offset,
		                    .size = (uint64_t)q->src.size };
	uint64_t bits = dst.offset | src.offset | 16;
	struct plan_facts facts = plan_facts_of_h200();
	struct engine_explanation explanation;
	const struct transform_sides sides = split_sides(split);
	bool small = is_small(&spec->dst) && is_small(&spec->src);
	struct error err = { 0 };

	facts.align = (uint32_t)(bits & -bits);
	if (transform_check_sides(&sides, &dst, &src, &err) < 0) {
		fuzz_check_error(&err);
		if (err.status == STATUS_OVERLAP && !strstr(err.message, "too complex") && small)
			fuzz_check(overlaps(&spec->dst, &spec->src, (int64_t)(src.offset - dst.offset)), "%s",
			           err.message);
		return;
	}
	check_inside(&spec->dst, dst.offset, dst.size, "dst");
	check_inside(&spec->src, src.offset, src.size, "src");
	if (q->same_memory && small)
		fuzz_check(!overlaps(&spec->dst, &spec->src, (int64_t)(src.offset - dst.offset)));
	check_parts(split, parts);
	if (!check_operands(q, &parts[0].conversion))
		return;
	if (split->n_parts > 1) /* The parts' places are only as aligned as their elements. */
		facts.align = 1;
	for (int i = 0; i < split->n_parts && i < MOST_PLANS; i++) {
		check_slabs(&parts[i], facts.align);
		cpu_explain(&explanation, &parts[i], facts.align);
		check_explanation(&explanation);
	}
	if (can_run(q, split))
		transform_run(q, spec, split, parts);
	facts.dst_phase = dst.offset % PLAN_PHASE;
	facts.src_phase = src.offset % PLAN_PHASE;
	for (int i = 0; i < split->n_parts && i < MOST_PLANS; i++)
		check_plan(&parts[i], &facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct split split;
	struct transform_request request;
	struct transform_spec spec = { 0 };
	struct transform transform;
	struct error err = { 0 };
	int r;

	transform_request_read(&request, data, size);
	if (spec_of(&spec, &request, &err) < 0) {
		fuzz_check_error(&err);
		return 0;
	}
	if (request.dst.split.n || request.src.split.n) {
		r = split_init(&split, &spec, &request.dst.split, &request.src.split, &err);
	} else {
		split_none(&split, &spec);
		r = transform_init(&transform, &spec, &err);
	}
	if (r < 0) {
		check_refusal(&spec, &err);
		return 0;
	}
	if (is_small(&spec.dst))
		fuzz_check(!overlaps_itself(&spec.dst), "accepted");
	try_places(&request, &spec, &split);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	uint64_t random = seed;
	struct transform_request request;

	if (size == 0 && oracle_random(&random) % 3 == 0)
		transform_request_valid_split(&request, &random);
	else if (size == 0 && oracle_random(&random) % 2)
		transform_request_valid_conversion(&request, &random);
	else if (size == 0)
		transform_request_valid(&request, &random);
	else if (oracle_random(&random) % 4 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	else
		transform_request_read(&request, data, size);
	for (uint64_t times = (size > 0) + oracle_random(&random) % 2; times; times--)
		transform_request_change(&request, &random);
	return transform_request_write(&request, data, max_size);
}
