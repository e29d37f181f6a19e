/* SPDX-License-Identifier: Apache-2.0 */
/* Runs random transforms between split tensors through the engine, all parts of one as one job, and compares
 * the whole destination, with guards and gaps, with joined indices (split_case.h). Environment variables:
 * PROPERTY_CASES: number of random transforms, instead of a share of FULL_CASES.
 * PROPERTY_SEED: seed of the first transform, by default 1. A case depends on its own seed alone.
 * The cases take the ways of ways.h in turn. */
#include <stdio.h>
#include <string.h>

#include "kernels/host/memory.h"
#include "tests/support/plans.h"
#include "tests/support/split_case.h"
#include "tests/support/tap.h"
#include "ways.h"

#define FULL_CASES   400000
#define DEFAULT_SEED 1

static bool complain(const struct bench *bench, const struct split_case *c, const char *what)
{
	char text[1024];

	split_case_text(c, text, sizeof text);
	fprintf(stderr, "property_split: %s, %s: %s: %s\n", bench->isa, way_names[bench->way], what, text);
	return false;
}

static bool run_parts(struct bench *bench, const struct split_case *c, const struct split *split)
{
	static struct transform transforms[SPLIT_MAX_PARTS];
	struct engine_move moves[SPLIT_MAX_PARTS];
	struct engine_job job = { .moves = moves, .n_moves = (uint32_t)split->n_parts };
	struct split_part part;
	struct error err;

	for (int i = 0; i < split->n_parts; i++) {
		split_get(split, i, &part);
		if (transform_init(&transforms[i], &part.spec, &err) < 0)
			return complain(bench, c, err.message);
		moves[i] = (struct engine_move){
			.transform = &transforms[i],
			.plan = plan_for(bench->engine, &transforms[i], 0, 0),
			.dst = bench->dst,
			.src = bench->src,
			.dst_offset = ORACLE_GUARD + c->c.dst_offset + (uint64_t)part.dst_offset,
			.src_offset = ORACLE_GUARD + c->c.src_offset + (uint64_t)part.src_offset,
		};
	}
	if (bench_run(bench, &job) < 0)
		return complain(bench, c, status_name(job.status));
	return true;
}

static bool try_case(struct bench *bench, struct split_case *s)
{
	struct oracle_case *c = &s->c;
	size_t dst_bytes = c->dst_size + 2 * ORACLE_GUARD, src_bytes = c->src_size + 2 * ORACLE_GUARD;
	struct split split;
	struct error err;
	char text[1024];

	if (dst_bytes > BENCH_BYTES || src_bytes > BENCH_BYTES)
		return complain(bench, s, "the case is larger than a region");
	if (split_init(&split, &c->spec, &s->dst, &s->src, &err) < 0)
		return complain(bench, s, err.message);

	memcpy(host_memory(bench->dst)->data, c->dst, dst_bytes);
	memcpy(host_memory(bench->src)->data, c->src, src_bytes);
	if (!run_parts(bench, s, &split))
		return false;
	if (memcmp(host_memory(bench->src)->data, c->src, src_bytes) != 0)
		return complain(bench, s, "the source was written");
	memcpy(c->dst, host_memory(bench->dst)->data, dst_bytes);
	if (oracle_case_check(c, text, sizeof text))
		return true;
	return complain(bench, s, text);
}

static bool try_seed(struct bench *bench, uint64_t seed)
{
	struct split_case c;
	bool good;

	split_random_case(seed, &c);
	if (!split_case_prepare(&c))
		bench_die("out of memory");
	good = try_case(bench, &c);
	oracle_case_free(&c.c);
	return good;
}

int main(void)
{
	struct bench bench[MOST_BENCHES];
	uint64_t cases = bench_number("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	uint64_t seed = bench_number("PROPERTY_SEED", DEFAULT_SEED);
	size_t n = benches_open(bench);

	bench_try_all(try_seed, bench, n, cases, seed,
	              "a random transform between split tensors is the oracle's, guards and source intact");
	benches_close(bench, n);
	return tap_end();
}
