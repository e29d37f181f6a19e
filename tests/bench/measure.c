/* SPDX-License-Identifier: Apache-2.0 */
/* The engine, the memory that both sides use, and the turns they take. */
#include "measure.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "baseline.h"
#include "explain.h"
#include "kernels/host/memory.h"
#include "kernels/cpu/tuning.h"
#include "kernels/engine.h"
#include "lists.h"
#include "proto/memory/headroom.h"
#include "proto/memory/mapping.h"
#include "proto/memory/memfd.h"
#include "tests/support/oracle.h"

#define ROOM     (UINT64_C(64) << 20) /* memory is made in multiples of it, so that rows share it */
#define WARM_UPS 2
#define POISON   0xa5

struct room {
	struct engine_memory *memory;
	uint64_t size;
};

struct measure {
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct baseline *baseline;
	sem_t woken;
	struct room dst;
	struct room src;
	double sample_ns;
	uint64_t round_bytes;
};

/* A row, ready to be moved. Small ones have many places, and each call of either side goes to the next. */
struct turn {
	struct bench_row row;
	struct transform_spec spec;
	struct transform transform;
	struct plan plan;
	struct engine_job job;
	struct engine_blocks blocks; /* of a row that has them */
	int32_t *index;
	uint64_t bytes;      /* read and written by a call */
	uint64_t dst_offset; /* of the first place's element [0, ..., 0] */
	uint64_t src_offset;
	uint64_t pitch; /* of places, in both memories */
	uint64_t n_places;
	uint64_t place; /* of the last call */
	bool done;      /* by the job's on_done */
};

/* ---- Open and close --------------------------------------------------------------------------------- */

static void on_wake(void *arg)
{
	struct measure *m = arg;

	sem_post(&m->woken);
}

static int force_isa(const char *name, struct error *err)
{
	struct cpu_tuning tuning = cpu_tuning_get();
	char list[128] = "";

	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		if (isa && !strcmp(isa->name, name)) {
			tuning.isa = isa;
			cpu_tuning_force(&tuning);
			return 0;
		}
		if (isa)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? ", " : "",
			         isa->name);
	}
	return error_set(err, STATUS_INVALID_ARGUMENT, "--isa=%s: this machine has %s", name, list);
}

int measure_open(struct measure **ret, const struct measure_options *options, struct error *err)
{
	struct measure *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	m->sample_ns = options->sample_ns;
	m->round_bytes = options->round_bytes;
	sem_init(&m->woken, 0, 0);
	engine_owner_init(&m->owner);
	struct engine_options engine = { .threads = options->threads, .wake = on_wake, .wake_arg = m };
	r = options->isa ? force_isa(options->isa, err) : 0;
	if (r == 0)
		r = engine_cpu_open(&m->engine, &engine, err);
	if (r == 0)
		r = baseline_new(&m->baseline, m->engine->facts.threads, err);
	if (r == 0 && !(m->stream = engine_stream_new(m->engine, &m->owner)))
		r = error_set(err, STATUS_NO_MEMORY, "out of memory");
	if (r < 0) {
		measure_close(m);
		return r;
	}
	*ret = m;
	return 0;
}

void measure_close(struct measure *m)
{
	if (!m)
		return;
	if (m->engine) {
		engine_stream_free(m->engine, m->stream);
		engine_unmap(m->engine, m->dst.memory);
		engine_unmap(m->engine, m->src.memory);
	}
	engine_owner_deinit(&m->owner);
	baseline_free(m->baseline);
	engine_close(m->engine);
	sem_destroy(&m->woken);
	free(m);
}

const char *measure_device(const struct measure *m)
{
	return m->engine->device;
}

unsigned measure_threads(const struct measure *m)
{
	return m->engine->facts.threads;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static uint8_t *data_of(const struct room *room)
{
	return (uint8_t *)host_memory(room->memory)->data;
}

/* As a client makes it for itself. */
static int make_memory(struct measure *m, struct room *room, struct error *err)
{
	struct headroom headroom;
	struct memfd_fill fill = { .size = room->size,
		                   .missing = room->size,
		                   .writable = true,
		                   .huge = true,
		                   .headroom = &headroom };
	int r = STATUS_NO_MEMORY;

	fill.fd = memfd_new(room->size);
	if (fill.fd < 0)
		return error_set(err, r, "%" PRIu64 " bytes: %s", room->size, strerror(-fill.fd));
	headroom_init(&headroom, "");
	fill.start = mapping_new(room->size, PROT_READ | PROT_WRITE, fill.fd, 0);
	if (fill.start == MAP_FAILED || memfd_fill(&fill) < 0)
		error_set(err, r, "%" PRIu64 " bytes: there is not that much memory", room->size);
	else
		r = engine_map(
		    m->engine,
		    &(struct engine_handle){
			.kind = REGION_KIND_MEMFD, .fd = fill.fd, .size = room->size, .writable = true },
		    &room->memory, err);
	if (fill.start != MAP_FAILED)
		munmap(fill.start, room->size);
	close(fill.fd);
	return r;
}

/* At least size bytes, all random. */
static int make_room(struct measure *m, struct room *room, uint64_t size, struct error *err)
{
	uint64_t state = 1;
	int r;

	if (room->memory && room->size >= size)
		return 0;
	engine_unmap(m->engine, room->memory);
	room->memory = NULL;
	room->size = (size / ROOM + 1) * ROOM;
	r = make_memory(m, room, err);
	if (r < 0)
		return r;
	uint64_t *words = (uint64_t *)(void *)data_of(room);
	for (uint64_t i = 0; i < room->size / sizeof(*words); i++)
		words[i] = oracle_random(&state);
	return 0;
}

/* ---- Moving ----------------------------------------------------------------------------------------- */

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void on_done(struct engine_job *job)
{
	struct turn *turn = (struct turn *)(void *)((char *)job - offsetof(struct turn, job));

	turn->done = true;
}

static uint64_t next_place(struct turn *turn)
{
	turn->place = turn->place + 1 < turn->n_places ? turn->place + 1 : 0;
	return turn->place * turn->pitch;
}

static int move(struct measure *m, struct turn *turn)
{
	uint64_t at = next_place(turn);

	turn->job.move.dst_offset = at + turn->dst_offset;
	turn->job.move.src_offset = at + turn->src_offset;
	turn->done = false;
	engine_submit(m->engine, m->stream, &turn->job);
	while (!turn->done) {
		while (sem_wait(&m->woken) < 0 && errno == EINTR)
			;
		engine_reap(m->engine);
	}
	return turn->job.status;
}

/* Nanoseconds a call. */
static int time_engine(struct measure *m, struct turn *turn, int calls, double *ret, struct error *err)
{
	double start = now_ns();
	int r = 0;

	for (int i = 0; i < calls && r == 0; i++)
		r = move(m, turn);
	*ret = (now_ns() - start) / calls;
	return r < 0 ? error_set(err, r, "a job ended with %s", status_name(r)) : 0;
}

static double time_memcpy(struct measure *m, struct turn *turn, int calls)
{
	size_t n = turn->bytes / 2;
	uint8_t *dst = data_of(&m->dst), *src = data_of(&m->src);

	baseline_start(m->baseline, n);
	double start = now_ns();
	for (int i = 0; i < calls; i++) {
		uint64_t at = next_place(turn);

		baseline_copy(m->baseline, dst + at, src + at, n);
	}
	double ns = (now_ns() - start) / calls;
	baseline_stop(m->baseline);
	return ns;
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int prepare(struct measure *m, const struct bench_row *row, struct turn *turn, struct error *err)
{
	struct transform *t = &turn->transform;
	int64_t first;
	int r;

	*turn = (struct turn){ .row = *row };
	r = bench_row_spec(row, &turn->spec, &first, err);
	if (r == 0)
		r = transform_init(t, &turn->spec, err);
	if (r < 0)
		return r;
	if (row->blocks)
		r = bench_list_init(row, t, &turn->blocks, &turn->index, err);
	if (r < 0)
		return r;
	plan_init(&turn->plan, t, &m->engine->facts);
	turn->bytes = t->bytes * (row->blocks ? turn->blocks.n : 1);
	turn->dst_offset = (uint64_t)row->offset * t->element;
	turn->src_offset = (uint64_t)first * t->element;
	uint64_t bytes = most_of(most_of(turn->dst_offset + (uint64_t)t->dst_extent.high,
	                                 turn->src_offset + (uint64_t)t->src_extent.high),
	                         row->blocks ? bench_list_bytes(&turn->blocks) : t->bytes / 2);
	turn->pitch = (bytes + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
	turn->n_places = most_of(m->round_bytes / turn->pitch, 1);
	r = make_room(m, &m->dst, turn->n_places * turn->pitch, err);
	if (r == 0)
		r = make_room(m, &m->src, turn->n_places * turn->pitch, err);
	turn->job = (struct engine_job){
		.move = { .transform = t, .plan = &turn->plan, .dst = m->dst.memory, .src = m->src.memory },
		.blocks = row->blocks ? &turn->blocks : NULL,
		.on_done = on_done
	};
	return r;
}

/* What the last call of the engine left. */
static int check(struct measure *m, const struct turn *turn, struct error *err)
{
	const uint8_t *dst = data_of(&m->dst) + turn->job.move.dst_offset;
	const uint8_t *src = data_of(&m->src) + turn->job.move.src_offset;

	if (turn->row.blocks)
		return bench_list_check(&turn->blocks, &turn->spec, dst, src, err);
	return bench_row_check(&turn->row, &turn->spec, dst, src, err);
}

static int time_runs(struct measure *m, struct turn *turn, int n_runs, struct report_row *ret,
                     struct error *err)
{
	double base, ours, calls = 1;
	int r;

	memset(data_of(&m->dst), POISON, turn->n_places * turn->pitch);
	r = time_engine(m, turn, 1, &ours, err);
	if (r == 0)
		r = check(m, turn, err);
	for (int run = -WARM_UPS; run < n_runs && r == 0; run++) {
		base = time_memcpy(m, turn, (int)calls);
		r = time_engine(m, turn, (int)calls, &ours, err);
		if (run < 0) {
			calls = m->sample_ns / (base < ours ? base : ours);
			calls = calls < 1 ? 1 : calls;
			continue;
		}
		ret->base_ns[run] = base;
		ret->ours_ns[run] = ours;
	}
	return r < 0 ? r : check(m, turn, err);
}

int measure_row(struct measure *m, const struct bench_row *row, int n_runs, struct report_row *ret,
                struct error *err)
{
	struct turn turn;
	int r = prepare(m, row, &turn, err);

	ret->n_runs = n_runs;
	ret->bytes = (double)turn.bytes;
	if (r == 0) {
		snprintf(ret->family, sizeof(ret->family), "%s", family_names[turn.plan.family]);
		explain_plan(&turn.plan, ret->explain, sizeof(ret->explain));
		r = time_runs(m, &turn, n_runs, ret, err);
	}
	free(turn.index);
	return r;
}
