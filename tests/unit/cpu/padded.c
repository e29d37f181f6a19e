/* SPDX-License-Identifier: Apache-2.0 */
/* Makes transforms from requests; the oracle computes the bytes that are expected. */
#include "padded.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "tests/support/oracle.h"

#define GUARD 64
#define SKEW  37   /* difference between the two destinations' offsets in a cache line, in bytes */
#define BLANK 0x5a /* value of bytes that nothing has written */

static void spec_init(const struct padded_request *request, struct transform_spec *spec)
{
	struct error err;
	int rank = request->rank;
	int64_t shape[4], strides[4], src_strides[4], step = 1, src_step = 1;
	*spec = (struct transform_spec){
		.n_perm = rank, .n_before = rank, .n_after = rank, .mode = request->mode
	};
	if (request->mode == PAD_MODE_CONSTANT)
		spec->value = (struct scalar){ .kind = SCALAR_FLOATING, .re = 7 };
	for (int d = rank - 1; d >= 0; d--) {
		spec->perm[d] = request->perm[d];
		spec->before[d] = request->before[d];
		spec->after[d] = request->after[d];
		shape[d] = request->shape[request->perm[d]] + request->before[d] + request->after[d];
		strides[d] = step;
		step = step * shape[d] + (d == rank - 1 ? request->dst_gap : 0);
		src_strides[d] = src_step + request->src_gap[d];
		src_step = src_strides[d] * request->shape[d];
	}
	cr_assert_eq(
	    tensor_layout_init(&spec->src, request->dtype, rank, request->shape, src_strides, "src", &err),
	    0);
	cr_assert_eq(tensor_layout_init(&spec->dst, request->dtype, rank, shape, strides, "dst", &err), 0);
}

void padded_init(struct padded *ret, const struct padded_request *request)
{
	struct transform_spec spec;
	struct error err;
	uint64_t state = 1;
	spec_init(request, &spec);
	ret->name = request->name;
	cr_assert_eq(transform_init(&ret->transform, &spec, &err), 0, "%s: %s", ret->name, err.message);
	size_t src_size = (size_t)ret->transform.src_extent.high;
	ret->dst_size = (size_t)ret->transform.dst_extent.high;
	ret->src = malloc(src_size);
	ret->expected = malloc(ret->dst_size);
	for (size_t i = 0; i < src_size; i++)
		ret->src[i] = (uint8_t)oracle_random(&state);
	memset(ret->expected, BLANK, ret->dst_size);
	oracle_run(&spec, ret->expected, ret->src);
}

void padded_deinit(struct padded *padded)
{
	free(padded->src);
	free(padded->expected);
}

static void try_place(const struct padded *padded, const struct cpu_isa *isa, size_t skew,
                      struct cpu_scratch *scratch, padded_run_fn *run, const void *arg)
{
	const struct transform *transform = &padded->transform;
	size_t size = padded->dst_size + skew + 2 * GUARD;
	uint8_t *dst = malloc(size), *expected = malloc(size);
	struct move_place place = { .dst = (char *)dst + GUARD + skew,
		                    .src = (char *)padded->src,
		                    .fill = transform->fill,
		                    .fill_bytes = transform->element,
		                    .mode = transform->mode,
		                    .stream = true };
	memset(dst, BLANK, size);
	memset(expected, BLANK, size);
	memcpy(expected + GUARD + skew, padded->expected, padded->dst_size);
	run(padded, isa, &place, scratch, arg);
	cr_assert_arr_eq(dst, expected, size, "%s, %s, skew %zu", padded->name, isa->name, skew);
	free(dst);
	free(expected);
}

void padded_try(const struct padded *padded, padded_run_fn *run, const void *arg)
{
	struct cpu_scratch *scratch = cpu_scratch_new();
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (size_t skew = 0; skew <= SKEW && cpu_isa_get(level); skew += SKEW)
			try_place(padded, cpu_isa_get(level), skew, scratch, run, arg);
	cpu_scratch_free(scratch);
}
