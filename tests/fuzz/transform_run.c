/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of the transform target, and running the parts of a small transform on one of them. */
#include "transform_run.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fuzz.h"
#include "kernels/cpu/run/tuning.h"
#include "kernels/engine.h"
#include "kernels/host/memory.h"
#include "tests/support/conversion_case.h"
#include "tests/support/plans.h"
#include "tests/support/split_case.h"

#define ROOM (RUN_MOST_BYTES + 2 * ORACLE_GUARD)

/* ---- Engines ------------------------------------------------------------------------------------------ */

enum way { WAY_INLINE, WAY_PLAIN, WAY_PIECES, WAYS };

static struct bench {
	int wakeups;
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_memory *memory[4]; /* for dst, src, scale and bias */
} benches[WAYS];

static bool finished;

static void wake(void *arg)
{
	uint64_t one = 1;

	if (write(*(int *)arg, &one, sizeof one) < 0)
		abort();
}

static void on_done(struct engine_job *job)
{
	(void)job;
	finished = true;
}

static void bench_open(struct bench *bench, enum way way)
{
	struct cpu_tuning tuning = { .isa = way == WAY_PLAIN ? cpu_isa_get(0) : cpu_isa_best(),
		                     .inline_bytes = way == WAY_PIECES ? 0 : INT64_MAX,
		                     .piece_least = 256,
		                     .piece_most = 2048,
		                     .stream_bytes = INT64_MAX };
	struct engine_options options = { .threads = 2, .wake = wake, .wake_arg = &bench->wakeups };
	struct engine_export made;
	struct error err;

	cpu_tuning_force(&tuning);
	bench->wakeups = eventfd(0, EFD_CLOEXEC);
	if (engine_cpu_open(&bench->engine, &options, &err) < 0)
		abort();
	cpu_tuning_force(NULL);
	engine_owner_init(&bench->owner);
	bench->stream = engine_stream_new(bench->engine, &bench->owner);
	for (int i = 0; i < 4; i++) {
		if (engine_create(bench->engine, REGION_KIND_MEMFD, ROOM, &bench->memory[i], &made, &err) < 0)
			abort();
		close(made.fd);
	}
}

static struct bench *bench_of(uint8_t way)
{
	struct bench *bench = &benches[way % WAYS];

	if (!bench->engine)
		bench_open(bench, (enum way)(way % WAYS));
	return bench;
}

static uint8_t *data_of(struct engine_memory *memory)
{
	return (uint8_t *)host_memory(memory)->data;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

static void fill(uint8_t *bytes, uint64_t random)
{
	for (size_t i = 0; i < ROOM; i += sizeof random) {
		uint64_t bits = oracle_random(&random);

		memcpy(bytes + i, &bits, sizeof bits);
	}
}

/* Fills the operand with random bits, some of them numbers small enough for the elements still to matter. */
static void fill_operand(const struct transform_request_operand *operand, uint8_t *bytes, uint64_t random)
{
	static const double numbers[] = { 0.5, -1, 3, 1e-3 };

	fill(bytes, random);
	if (operand->tensor.dtype == DTYPE_FLOAT64)
		for (size_t i = 0; i + 8 <= ROOM; i += 16)
			memcpy(bytes + i, &numbers[i / 16 % 4], 8);
	else
		for (size_t i = 0; i + 4 <= ROOM; i += 8)
			memcpy(bytes + i, &(float){ (float)numbers[i / 8 % 4] }, 4);
}

/* Returns the operand as the engine and the oracle take it. */
static struct engine_operand place_operand(const struct transform_request_operand *operand,
                                           struct engine_memory *memory, uint64_t random,
                                           struct operand_source *ret)
{
	struct engine_operand placed = { .number = transform_request_number(operand) };

	*ret = (struct operand_source){ .number = placed.number };
	if (operand->kind != OPERAND_TENSOR)
		return placed;
	fill_operand(operand, data_of(memory), random);
	placed.memory = memory;
	placed.offset = ORACLE_GUARD + (uint64_t)operand->tensor.offset;
	ret->origin = data_of(memory) + placed.offset;
	return placed;
}

/* Runs the oracle from the source to the expected destination. */
static uint64_t oracle(const struct transform_request *q, const struct transform_spec *spec, uint8_t *dst,
                       const uint8_t *src, const struct operand_source *scale,
                       const struct operand_source *bias)
{
	if (spec->conversion.is_given)
		return conversion_oracle_run(spec, &q->dst.split, &q->src.split, dst, src, scale, bias);
	split_oracle_run(spec, &q->dst.split, &q->src.split, dst, src);
	return 0;
}

void transform_run(const struct transform_request *q, const struct transform_spec *spec,
                   const struct split *split, const struct transform *parts)
{
	static uint8_t expected[ROOM], source[ROOM];
	struct engine_move moves[SPLIT_MAX_PARTS];
	struct bench *bench = bench_of(q->way);
	struct engine_memory *dst = bench->memory[0], *src = bench->memory[q->same_memory ? 0 : 1];
	const uint64_t to = ORACLE_GUARD + (uint64_t)q->dst.offset,
		       from = ORACLE_GUARD + (uint64_t)q->src.offset;
	struct engine_job job = { .on_done = on_done };
	struct operand_source sources[2];
	const struct engine_operand scale = place_operand(&q->scale, bench->memory[2], 3, &sources[0]);
	const struct engine_operand bias = place_operand(&q->bias, bench->memory[3], 4, &sources[1]);
	struct split_part part;
	uint64_t count, changed;

	fill(data_of(dst), 1);
	if (src != dst)
		fill(data_of(src), 2);
	memcpy(source, data_of(src), ROOM);
	memcpy(expected, data_of(dst), ROOM);
	changed = oracle(q, spec, expected + to, source + from, &sources[0], &sources[1]);

	for (int i = 0; i < split->n_parts; i++) {
		split_get(split, i, &part);
		moves[i] = (struct engine_move){ .transform = &parts[i],
			                         .plan = plan_for(bench->engine, &parts[i],
			                                          to + (uint64_t)part.dst_offset,
			                                          from + (uint64_t)part.src_offset),
			                         .dst = dst,
			                         .src = src,
			                         .dst_offset = to + (uint64_t)part.dst_offset,
			                         .src_offset = from + (uint64_t)part.src_offset,
			                         .operand = { [ROLE_SCALE] = scale, [ROLE_BIAS] = bias } };
	}
	if (split->n_parts == 1) {
		job.move = moves[0];
	} else {
		job.moves = moves;
		job.n_moves = (uint32_t)split->n_parts;
	}
	finished = false;
	engine_submit(bench->engine, bench->stream, &job);
	while (!finished) {
		if (read(bench->wakeups, &count, sizeof count) < 0)
			abort();
		engine_reap(bench->engine);
	}
	fuzz_check(job.status == (changed ? STATUS_OUT_OF_RANGE : 0), "%s", status_name(job.status));
	if (spec->conversion.is_given)
		conversion_oracle_accept(spec, &q->dst.split, &q->src.split, expected + to,
		                         data_of(dst) + to);
	fuzz_check(!memcmp(data_of(dst), expected, ROOM), "%s: not what the oracle moves",
	           family_names[split->n_parts == 1 ? job.move.family : moves[split->largest].family]);
	if (src != dst)
		fuzz_check(!memcmp(data_of(src), source, ROOM), "the source was written");
	plans_drop();
}
