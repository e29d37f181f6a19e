/* SPDX-License-Identifier: Apache-2.0 */
/* Runs random transforms and conversions through the engine and compares the whole destination, with guards
 * and gaps, with the oracles. Also tests that a transpose by a permutation, followed by one by its inverse,
 * is the identity. Environment variables:
 * PROPERTY_CASES: number of random transforms, instead of a share of FULL_CASES.
 * PROPERTY_SEED: seed of the first transform, by default 1. A case depends on its own seed alone.
 * The cases take the ways of ways.h in turn. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/memory.h"
#include "tests/support/conversion_case.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"
#include "tests/support/tap.h"
#include "ways.h"

#define FULL_CASES   1000000
#define DEFAULT_SEED 1
#define REPEATS      2  /* runs of a layout before its plan is kept (small.h) */
#define APART        64 /* bytes between the places of these runs and those of the run that is checked */
/* A transpose there and back takes longer, so one is tried for every INVERSE_SHARE transforms. */
#define INVERSE_SHARE 10
/* The oracle takes an element at a time, so a conversion is tried for every CONVERSION_SHARE transforms. */
#define CONVERSION_SHARE 10
#define BIAS_AT          (BENCH_BYTES / 2) /* in the memory of either operand */

/* The parameters dst and src are the offsets of elements [0, ..., 0] in the bench's memories, in bytes. */
static struct engine_move move_of(const struct bench *bench, const struct transform *transform, uint64_t dst,
                                  uint64_t src)
{
	return (struct engine_move){ .transform = transform,
		                     .plan = plan_for(bench->engine, transform, 0, 0),
		                     .dst = bench->dst,
		                     .src = bench->src,
		                     .dst_offset = dst,
		                     .src_offset = src };
}

static int run(struct bench *bench, const struct transform *transform, uint64_t dst, uint64_t src)
{
	struct engine_job job = { .move = move_of(bench, transform, dst, src) };
	return bench_run(bench, &job);
}

/* Runs the job between other places first, so that its own run uses what the layout's plan has kept from
 * there. */
static void run_elsewhere(struct bench *bench, const struct engine_job *job, size_t dst_bytes,
                          size_t src_bytes)
{
	struct engine_job other = *job;
	if (dst_bytes > BENCH_BYTES - APART || src_bytes > BENCH_BYTES - APART)
		return;
	other.move.dst_offset += APART;
	other.move.src_offset += APART;
	other.move.operand[ROLE_SCALE].offset += APART;
	other.move.operand[ROLE_BIAS].offset += APART;
	for (int i = 0; i < REPEATS; i++)
		bench_run(bench, &other);
}

/* ---- Against the oracle ----------------------------------------------------------------------------- */

static bool complain(const struct bench *bench, const struct oracle_case *c, const char *what)
{
	char text[1024];
	oracle_case_text(c, text, sizeof(text));
	fprintf(stderr, "property_transform: %s, %s: %s: %s\n", bench->isa, way_names[bench->way], what,
	        text);
	return false;
}

static bool try_case(struct bench *bench, struct oracle_case *c)
{
	struct transform transform;
	struct error err;
	char text[1024];
	size_t dst_bytes = c->dst_size + 2 * ORACLE_GUARD, src_bytes = c->src_size + 2 * ORACLE_GUARD;
	if (dst_bytes > BENCH_BYTES || src_bytes > BENCH_BYTES)
		return complain(bench, c, "the case is larger than a region");
	if (transform_init(&transform, &c->spec, &err) < 0)
		return complain(bench, c, err.message);

	struct tensor_place dst = { .memory = { bench->dst->memory[0], bench->dst->memory[1] },
		                    .base = bench->dst->base + ORACLE_GUARD,
		                    .offset = c->dst_offset,
		                    .size = c->dst_size };
	struct tensor_place src = { .memory = { bench->src->memory[0], bench->src->memory[1] },
		                    .base = bench->src->base + ORACLE_GUARD,
		                    .offset = c->src_offset,
		                    .size = c->src_size };
	const struct transform_sides sides = transform_sides(&transform);

	if (transform_check_sides(&sides, &dst, &src, &err) < 0)
		return complain(bench, c, err.message);

	memcpy(host_memory(bench->src)->data, c->src, src_bytes);
	struct engine_job job = { .move = move_of(bench, &transform, ORACLE_GUARD + c->dst_offset,
		                                  ORACLE_GUARD + c->src_offset) };
	run_elsewhere(bench, &job, dst_bytes, src_bytes);
	memcpy(host_memory(bench->dst)->data, c->dst, dst_bytes);
	int status = bench_run(bench, &job);
	if (status < 0)
		return complain(bench, c, status_name(status));
	if (memcmp(host_memory(bench->src)->data, c->src, src_bytes) != 0)
		return complain(bench, c, "the source was written");
	memcpy(c->dst, host_memory(bench->dst)->data, dst_bytes);
	if (oracle_case_check(c, text, sizeof(text)))
		return true;
	fprintf(stderr, "property_transform: %s, %s: %s\n", bench->isa, way_names[bench->way], text);
	return false;
}

static bool try_seed(struct bench *bench, uint64_t seed)
{
	struct oracle_case c;
	oracle_random_case(seed, &c);
	if (!oracle_case_prepare(&c))
		bench_die("out of memory");
	bool good = try_case(bench, &c);
	oracle_case_free(&c);
	return good;
}

/* ---- Conversions against their oracle ----------------------------------------------------------------- */

/* Returns a number, or a tensor that lies at `at` in the memory of operands. */
static struct engine_operand operand_of(const struct bench *bench, const struct operand_case *operand,
                                        uint64_t at)
{
	struct engine_operand ret = { .number = operand->number };
	if (operand->bytes) {
		ret.memory = bench->index;
		ret.offset = at + operand->offset;
		memcpy(host_memory(bench->index)->data + at, operand->bytes, operand->size);
	}
	return ret;
}

static bool converts_wrongly(const struct bench *bench, const struct conversion_case *c, const char *what)
{
	char text[2048];
	conversion_case_text(c, text, sizeof(text));
	fprintf(stderr, "property_transform: %s, %s: conversion%s: ", bench->isa, way_names[bench->way],
	        text);
	return complain(bench, &c->c, what);
}

/* Returns whether the count of changed elements is right. Elements of a border that repeats the source may be
 * counted once each or as often as they are written. */
static bool is_counted(const struct conversion_case *c, uint64_t changed)
{
	return c->c.spec.mode == PAD_MODE_CONSTANT ? changed == c->changed : !changed == !c->changed;
}

static bool try_conversion(struct bench *bench, struct conversion_case *c)
{
	struct transform transform;
	struct error err;
	char text[4096];
	size_t dst_bytes = c->c.dst_size + 2 * ORACLE_GUARD, src_bytes = c->c.src_size + 2 * ORACLE_GUARD;
	if (dst_bytes > BENCH_BYTES || src_bytes > BENCH_BYTES || c->scale.size > BIAS_AT - APART ||
	    c->bias.size > BIAS_AT - APART)
		return converts_wrongly(bench, c, "the case is larger than a region");
	if (transform_init(&transform, &c->c.spec, &err) < 0)
		return converts_wrongly(bench, c, err.message);

	struct engine_job job = { .move = move_of(bench, &transform, ORACLE_GUARD + c->c.dst_offset,
		                                  ORACLE_GUARD + c->c.src_offset) };
	job.move.operand[ROLE_SCALE] = operand_of(bench, &c->scale, 0);
	job.move.operand[ROLE_BIAS] = operand_of(bench, &c->bias, BIAS_AT);
	memcpy(host_memory(bench->src)->data, c->c.src, src_bytes);
	run_elsewhere(bench, &job, dst_bytes, src_bytes);
	memcpy(host_memory(bench->dst)->data, c->c.dst, dst_bytes);
	int status = bench_run(bench, &job);
	if (status != (c->changed ? STATUS_OUT_OF_RANGE : 0) || !is_counted(c, job.move.changed)) {
		snprintf(text, sizeof(text), "%s, %" PRIu64 " values changed, not %" PRIu64,
		         status_name(status), job.move.changed, c->changed);
		return converts_wrongly(bench, c, text);
	}
	if (memcmp(host_memory(bench->src)->data, c->c.src, src_bytes) != 0)
		return converts_wrongly(bench, c, "the source was written");
	memcpy(c->c.dst, host_memory(bench->dst)->data, dst_bytes);
	if (conversion_case_check(c, text, sizeof(text)))
		return true;
	fprintf(stderr, "property_transform: %s, %s: %s\n", bench->isa, way_names[bench->way], text);
	return false;
}

static bool try_conversion_seed(struct bench *bench, uint64_t seed)
{
	struct conversion_case c;
	conversion_random_case(seed, &c);
	if (!conversion_case_prepare(&c))
		bench_die("out of memory");
	bool good = try_conversion(bench, &c);
	conversion_case_free(&c);
	return good;
}

/* ---- There and back --------------------------------------------------------------------------------- */

static void transpose_of(struct transform *ret, enum dtype dtype, int rank, const int64_t *shape,
                         const int64_t *perm)
{
	struct transform_spec spec = { .n_perm = rank, .n_before = -1, .n_after = -1 };
	struct error err;
	int64_t permuted[TENSOR_MAX_RANK];
	for (int d = 0; d < rank; d++) {
		spec.perm[d] = perm[d];
		permuted[d] = shape[perm[d]];
	}
	if (tensor_layout_init(&spec.src, dtype, rank, shape, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&spec.dst, dtype, rank, permuted, NULL, "dst", &err) < 0 ||
	    transform_init(ret, &spec, &err) < 0)
		bench_die(err.message);
}

/* Transposes src to dst by a random permutation and, after src has been cleared, back by its inverse. */
static bool try_inverse(struct bench *bench, uint64_t seed)
{
	uint64_t state = seed;
	int rank = (int)oracle_between(&state, 1, 5);
	int64_t shape[TENSOR_MAX_RANK], permuted[TENSOR_MAX_RANK];
	int64_t perm[TENSOR_MAX_RANK], inverse[TENSOR_MAX_RANK];
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);
	int64_t room = BENCH_BYTES / TENSOR_MAX_ELEMENT >> oracle_between(&state, 0, 8);
	for (int d = 0; d < rank; d++) {
		int64_t most = d == rank - 1 || room < 64 ? room : 64;
		shape[d] = oracle_between(&state, 1, most < 600 ? most : 600);
		room /= shape[d];
		perm[d] = d;
	}
	for (int d = rank - 1; d > 0; d--) {
		int64_t other = oracle_between(&state, 0, d), kept = perm[d];
		perm[d] = perm[other];
		perm[other] = kept;
	}
	for (int d = 0; d < rank; d++) {
		permuted[d] = shape[perm[d]];
		inverse[perm[d]] = d;
	}

	struct transform there, back;
	transpose_of(&there, dtype, rank, shape, perm);
	transpose_of(&back, dtype, rank, permuted, inverse);
	size_t size = (size_t)there.count * there.element;
	char *src = host_memory(bench->src)->data, *start = malloc(size);
	if (!start)
		bench_die("out of memory");
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t bits = oracle_random(&state);
		memcpy(src + i, &bits, 8);
	}
	memcpy(start, src, size);
	int status = run(bench, &there, 0, 0);
	memset(src, 0, size);
	struct engine_memory *dst = bench->dst;
	bench->dst = bench->src;
	bench->src = dst;
	status |= run(bench, &back, 0, 0);
	bool good = status == 0 && memcmp(host_memory(bench->dst)->data, start, size) == 0;
	free(start);
	if (!good)
		fprintf(stderr, "property_transform: seed %" PRIu64 " (%s, %s): not the identity\n", seed,
		        bench->isa, way_names[bench->way]);
	return good;
}

/* ---- Main ------------------------------------------------------------------------------------------- */

int main(void)
{
	struct bench bench[MOST_BENCHES];
	uint64_t cases = bench_number("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	uint64_t seed = bench_number("PROPERTY_SEED", DEFAULT_SEED);
	size_t n = benches_open(bench);
	bench_try_all(try_seed, bench, n, cases, seed,
	              "a random transform is the oracle's, guards and source intact");
	bench_try_all(try_conversion_seed, bench, n, cases / CONVERSION_SHARE, seed,
	              "a random conversion is the oracle's, and so is the count of an exact one");
	bench_try_all(try_inverse, bench, n, cases / INVERSE_SHARE, seed,
	              "a transpose and its inverse are the identity");
	benches_close(bench, n);
	return tap_end();
}
