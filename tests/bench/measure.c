/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the engines and the memory that both sides use, and takes turns between the sides. */
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
#include "kernels/cpu/move/move.h"
#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/run/tuning.h"
#include "kernels/engine.h"
#include "kernels/host/memory.h"
#include "kernels/host/threads.h"
#include "lists.h"
#include "proto/memory/headroom.h"
#include "proto/memory/memfd.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"
#include "variant.h"

#define ROOM     (UINT64_C(64) << 20) /* memory sizes are rounded up to this, so that rows can share memory */
#define WARM_UPS 2
#define POISON   0xa5
/* Pause before a run; an engine's threads look for more work for a quarter of it before they sleep. */
#define REST_NS 200000

struct room {
	struct engine_memory *memory;
	uint64_t size;
};

/* An engine and the owner of its jobs. */
struct side {
	const struct cpu_isa *isa;
	struct engine *engine; /* NULL: the engine was not opened */
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_plan *plan; /* the current row's plan */
	sem_t woken;
};

_Static_assert((int)CPU_ISA_LEVELS <= REPORT_MAX_ISAS, "a report has room for each instruction set");
_Static_assert(1 + CPU_CANDIDATES <= REPORT_MAX_ISAS, "and for each candidate beside the one chosen");

/* A way to move a row: an engine, and the candidate that it is made to use. */
struct variant {
	struct side *side;
	int candidate; /* as move_force takes it */
	const char *name;
};

struct measure {
	unsigned threads;
	struct side side[CPU_ISA_LEVELS];
	int n_sides;
	struct variant variant[REPORT_MAX_ISAS];
	int n_variants;
	struct baseline *baseline;
	struct room dst; /* mapped by the first engine and used by all */
	struct room src;
	struct room scale; /* for rows with amax */
	double sample_ns;
	uint64_t round_bytes;
};

/* A row that is ready to be moved. A small row has many places, and each call of either side uses the next
 * one. */
struct turn {
	struct bench_row row;
	struct transform_spec spec;
	struct transform transform;
	struct cpu_plan plan;                  /* predicts the time of the row */
	struct engine_explanation explanation; /* explains the plan */
	struct engine_job job;
	struct engine_blocks blocks; /* for rows with blocks */
	int32_t *index;
	uint64_t bytes;      /* bytes read and written by a call */
	uint64_t dst_offset; /* offset of element [0, ..., 0] in the first place */
	uint64_t src_offset;
	uint64_t pitch; /* bytes between places, in both memories */
	uint64_t n_places;
	uint64_t place; /* place used by the last call */
	/* For each variant, the one that is timed for it: the first that moves the row alike, mostly
	 * itself. */
	int alike[REPORT_MAX_ISAS];
	bool done; /* set by the job's on_done */
};

/* ---- Open and close --------------------------------------------------------------------------------- */

static void on_wake(void *arg)
{
	struct side *side = arg;

	sem_post(&side->woken);
}

static int add_isa(struct measure *m, const struct cpu_isa *isa, struct error *err)
{
	for (int i = 0; i < m->n_sides; i++)
		if (m->side[i].isa == isa)
			return error_set(err, STATUS_INVALID_ARGUMENT, "--isa: %s is named twice", isa->name);
	m->side[m->n_sides++].isa = isa;
	return 0;
}

/* Adds the instruction set of that name, or every one for "all". */
static int add_isas_named(struct measure *m, const char *name, size_t len, struct error *err)
{
	bool all = len == strlen("all") && !strncmp(name, "all", len);
	char list[128] = "";
	int r = 0, found = 0;

	for (int level = 0; level < CPU_ISA_LEVELS && r == 0; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		if (!isa)
			continue;
		if (all || (len == strlen(isa->name) && !strncmp(name, isa->name, len))) {
			r = add_isa(m, isa, err);
			found++;
		}
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? ", " : "",
		         isa->name);
	}
	return found ? r
	             : error_set(err, STATUS_INVALID_ARGUMENT, "--isa=%.*s: this machine has %s", (int)len,
	                         name, list);
}

static int choose_isas(struct measure *m, const char *names, struct error *err)
{
	int r = 0;

	if (!names)
		return add_isa(m, cpu_isa_best(), err);
	while (r == 0) {
		size_t len = strcspn(names, ",");

		r = add_isas_named(m, names, len, err);
		if (!names[len])
			break;
		names += len + 1;
	}
	return r;
}

static int open_side(struct side *side, unsigned threads, struct error *err)
{
	struct engine_options options = { .threads = threads, .wake = on_wake, .wake_arg = side };
	struct cpu_tuning tuning = cpu_tuning_get();
	int r;

	sem_init(&side->woken, 0, 0);
	engine_owner_init(&side->owner);
	tuning.isa = side->isa;
	cpu_tuning_force(&tuning);
	r = engine_cpu_open(&side->engine, &options, err);
	cpu_tuning_force(NULL);
	if (r == 0 && !(side->stream = engine_stream_new(side->engine, &side->owner)))
		r = error_set(err, STATUS_NO_MEMORY, "out of memory");
	return r;
}

static void close_side(struct side *side)
{
	if (!side->engine)
		return;
	engine_stream_free(side->engine, side->stream);
	engine_owner_deinit(&side->owner);
	engine_close(side->engine);
	sem_destroy(&side->woken);
}

static int add_variants(struct measure *m, bool candidates, struct error *err)
{
	if (candidates && m->n_sides > 1)
		return error_set(err, STATUS_INVALID_ARGUMENT, "--candidates: by one instruction set only");
	for (int i = 0; i < m->n_sides; i++)
		m->variant[m->n_variants++] =
		    (struct variant){ &m->side[i], -1, candidates ? REPORT_CHOSEN : m->side[i].isa->name };
	for (int i = 0; candidates && i < CPU_CANDIDATES; i++)
		m->variant[m->n_variants++] = (struct variant){ &m->side[0], i, cpu_candidate_names[i] };
	return 0;
}

int measure_open(struct measure **ret, const struct measure_options *options, struct error *err)
{
	struct measure *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	m->sample_ns = options->sample_ns;
	m->round_bytes = options->round_bytes;
	m->threads = options->threads ? options->threads : threads_default();
	r = choose_isas(m, options->isa, err);
	if (r == 0)
		r = add_variants(m, options->candidates, err);
	for (int i = 0; i < m->n_sides && r == 0; i++)
		r = open_side(&m->side[i], options->threads, err);
	if (r == 0)
		r = baseline_new(&m->baseline, measure_threads(m), err);
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
	if (m->side[0].engine) {
		engine_unmap(m->side[0].engine, m->dst.memory);
		engine_unmap(m->side[0].engine, m->src.memory);
		engine_unmap(m->side[0].engine, m->scale.memory);
	}
	for (int i = 0; i < m->n_sides; i++)
		close_side(&m->side[i]);
	baseline_free(m->baseline);
	free(m);
}

unsigned measure_threads(const struct measure *m)
{
	return m->threads;
}

int measure_n_variants(const struct measure *m)
{
	return m->n_variants;
}

const char *measure_variant(const struct measure *m, int i)
{
	return m->variant[i].name;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static uint8_t *data_of(const struct room *room)
{
	return (uint8_t *)host_memory(room->memory)->data;
}

/* Makes memory as a client does for itself. */
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
		    m->side[0].engine,
		    &(struct engine_handle){
			.kind = REGION_KIND_MEMFD, .fd = fill.fd, .size = room->size, .writable = true },
		    &room->memory, err);
	if (fill.start != MAP_FAILED)
		munmap(fill.start, room->size);
	close(fill.fd);
	return r;
}

/* Provides at least size random bytes. */
static int make_room(struct measure *m, struct room *room, uint64_t size, struct error *err)
{
	uint64_t state = 1;
	int r;

	if (room->memory && room->size >= size)
		return 0;
	engine_unmap(m->side[0].engine, room->memory);
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

/* Makes every 16-bit number finite: an infinity or a NaN would determine its whole block. */
static void make_finite(struct room *room)
{
	uint64_t *words = (uint64_t *)(void *)data_of(room);

	for (uint64_t i = 0; i < room->size / sizeof(*words); i++)
		words[i] &= UINT64_C(0xbfffbfffbfffbfff);
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

static int move(struct side *side, struct turn *turn)
{
	uint64_t at = next_place(turn);

	turn->job.move.plan = side->plan;
	turn->job.move.dst_offset = at + turn->dst_offset;
	turn->job.move.src_offset = at + turn->src_offset;
	turn->done = false;
	engine_submit(side->engine, side->stream, &turn->job);
	while (!turn->done) {
		while (sem_wait(&side->woken) < 0 && errno == EINTR)
			;
		engine_reap(side->engine);
	}
	return turn->job.status;
}

/* Returns in *ret the nanoseconds of a call. */
static int time_engine(const struct variant *variant, struct turn *turn, int calls, double *ret,
                       struct error *err)
{
	move_force(variant->candidate);
	double start = now_ns();
	int r = 0;

	for (int i = 0; i < calls && r == 0; i++)
		r = move(variant->side, turn);
	*ret = (now_ns() - start) / calls;
	move_force(-1);
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
	cpu_plan_init(&turn->plan, t, CPU_ALIGN);
	cpu_explain(&turn->explanation, t, CPU_ALIGN);
	for (int i = 0; i < m->n_sides; i++)
		m->side[i].plan = plan_for(m->side[i].engine, t, 0, 0);
	turn->bytes = t->bytes * (row->blocks ? turn->blocks.n : 1);
	turn->dst_offset = (uint64_t)row->offset * t->element;
	turn->src_offset = (uint64_t)first * t->src_element;
	uint64_t bytes = most_of(most_of(turn->dst_offset + (uint64_t)t->dst_extent.high,
	                                 turn->src_offset + (uint64_t)t->src_extent.high),
	                         row->blocks ? bench_list_bytes(&turn->blocks) : t->bytes / 2);
	turn->pitch = (bytes + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
	turn->n_places = most_of(m->round_bytes / turn->pitch, 1);
	r = make_room(m, &m->dst, turn->n_places * turn->pitch, err);
	if (r == 0)
		r = make_room(m, &m->src, turn->n_places * turn->pitch, err);
	if (r == 0 && row->amax[0]) {
		make_finite(&m->src);
		r = make_room(m, &m->scale, (uint64_t)t->conversion.amax.scale.extent.high, err);
	}
	turn->job = (struct engine_job){ .move = { .transform = t,
		                                   .dst = m->dst.memory,
		                                   .src = m->src.memory,
		                                   .operand[ROLE_SCALE].number = row->scale,
		                                   .operand[ROLE_AMAX_SCALE].memory = m->scale.memory },
		                         .blocks = row->blocks ? &turn->blocks : NULL,
		                         .on_done = on_done };
	return r;
}

/* Checks the result of the engine's last call. */
static int check(struct measure *m, const struct turn *turn, struct error *err)
{
	const uint8_t *dst = data_of(&m->dst) + turn->job.move.dst_offset;
	const uint8_t *src = data_of(&m->src) + turn->job.move.src_offset;

	if (turn->row.blocks)
		return bench_list_check(&turn->blocks, &turn->spec, dst, src, err);
	return bench_row_check(&turn->row, &turn->spec, dst, src, err);
}

/* Returns the first variant that moves the row as variant i does. */
static int first_alike(const struct measure *m, const struct turn *turn, int i)
{
	const struct variant *of = &m->variant[i];
	int k = 0;

	while (k < i && !(m->variant[k].side == of->side &&
	                  variant_is_alike(&turn->plan, turn->bytes, m->variant[k].candidate, of->candidate)))
		k++;
	return k;
}

/* Checks one call of each variant, after overwriting the destination with other bytes. */
static int check_variants(struct measure *m, struct turn *turn, struct error *err)
{
	double ns;
	int r = 0;

	for (int i = 0; i < m->n_variants && r == 0; i++) {
		turn->alike[i] = first_alike(m, turn, i);
		if (turn->alike[i] != i)
			continue;
		memset(data_of(&m->dst), POISON, turn->n_places * turn->pitch);
		r = time_engine(&m->variant[i], turn, 1, &ns, err);
		if (r == 0)
			r = check(m, turn, err);
	}
	return r;
}

/* Waits until the threads of the previous engine sleep and take no time from the next one. */
static void rest(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = REST_NS }, NULL);
}

/* The order of the variants after memcpy rotates from run to run, so that none is always first. */
static int time_runs(struct measure *m, struct turn *turn, int n_runs, struct report_row *ret,
                     struct error *err)
{
	int calls = 1, r = check_variants(m, turn, err);

	for (int run = -WARM_UPS; run < n_runs && r == 0; run++) {
		double base = time_memcpy(m, turn, calls), ours, least = base;

		for (int k = 0; k < m->n_variants && r == 0; k++) {
			int i = (run + WARM_UPS + k) % m->n_variants;

			if (turn->alike[i] != i)
				continue;
			if (k > 0)
				rest();
			r = time_engine(&m->variant[i], turn, calls, &ours, err);
			if (r == 0 && run == n_runs - 1)
				r = check(m, turn, err);
			least = ours < least ? ours : least;
			if (run < 0)
				continue;
			ret[i].base_ns[run] = base;
			ret[i].ours_ns[run] = ours;
		}
		if (run < 0)
			calls = m->sample_ns > least ? (int)(m->sample_ns / least) : 1;
	}
	for (int i = 0; i < m->n_variants; i++) {
		memcpy(ret[i].base_ns, ret[turn->alike[i]].base_ns, sizeof(ret[i].base_ns));
		memcpy(ret[i].ours_ns, ret[turn->alike[i]].ours_ns, sizeof(ret[i].ours_ns));
	}
	return r;
}

int measure_row(struct measure *m, const struct bench_row *row, int n_runs, struct report_row *ret,
                struct error *err)
{
	struct turn turn;
	int r = prepare(m, row, &turn, err);

	for (int i = 0; i < m->n_variants && r == 0; i++) {
		snprintf(ret[i].isa, sizeof(ret[i].isa), "%s", measure_variant(m, i));
		ret[i].predicted =
		    row->blocks ? 0 : variant_predict(&turn.plan, turn.bytes, m->variant[i].candidate);
		snprintf(ret[i].family, sizeof(ret[i].family), "%s", family_names[turn.plan.family]);
		if (m->variant[i].candidate < 0)
			explain_plan(&turn.explanation, ret[i].explain, sizeof(ret[i].explain));
		ret[i].n_runs = n_runs;
		ret[i].bytes = (double)turn.bytes;
	}
	if (r == 0)
		r = time_runs(m, &turn, n_runs, ret, err);
	free(turn.index);
	return r;
}
