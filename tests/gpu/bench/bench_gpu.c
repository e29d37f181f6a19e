/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the device moves tensors, against its own copy of as many bytes in the same run.
 *
 * Compared are the kernel of a plan and cuMemcpyDtoDAsync of the same number of bytes, by the device's
 * events. They take turns in the same memory. Each call uses the next place in it, and all places together
 * are twice as large as the L2, so that nothing is found in it. A run repeats short calls; a copy of
 * something else, which is not timed, keeps the device busy until all of them are enqueued, so that none
 * waits for the host. Data is random. Rows are in bench_rows.h; tests/bench/program.h has the command line
 * and the table.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench_rows.h"
#include "tests/bench/explain.h"
#include "tests/bench/program.h"
#include "tests/gpu/rig.h"
#include "tests/support/oracle.h"

#define WARM_UPS     3
#define ALIGN        256
#define SAMPLE_BYTES (128ull << 20) /* that a run moves, unless it needs too many calls */
#define MAX_CALLS    32
#define RANDOM       (64u << 20)
#define LEAD         (128u << 20) /* that a copy ahead of the calls reads */
#define MAX_LEADS    64
#define POISON       0xa5

/* Memory of the host, pinned; grows. */
struct host {
	uint8_t *data;
	size_t size;
};

static struct rig rig;
static bool is_open;
static CUdeviceptr random_bytes;
static CUdeviceptr lead_dst, lead_src;
static struct host dst_host, src_host;

/* ---- Data ------------------------------------------------------------------------------------------- */

static void make_random(void)
{
	uint64_t *host = malloc(RANDOM), state = 1;

	if (!host)
		rig_die("out of memory");
	for (size_t i = 0; i < RANDOM / 8; i++)
		host[i] = oracle_random(&state);
	random_bytes = rig_new(RANDOM);
	rig_call(cuMemcpyHtoDAsync, (random_bytes, host, RANDOM, rig.stream));
	rig_wait(&rig);
	free(host);
}

static CUdeviceptr new_random(size_t size)
{
	CUdeviceptr memory = rig_new(size);

	for (size_t at = 0; at < size; at += RANDOM)
		rig_call(cuMemcpyDtoDAsync,
		         (memory + at, random_bytes, size - at < RANDOM ? size - at : RANDOM, rig.stream));
	return memory;
}

/* At least that many bytes of the host. */
static uint8_t *host_room(struct host *host, size_t size)
{
	if (host->size >= size)
		return host->data;
	if (host->data)
		rig_call(cuMemHostUnregister, (host->data));
	free(host->data);
	host->size = (size + RANDOM) / RANDOM * RANDOM;
	host->data = aligned_alloc(4096, host->size);
	if (!host->data)
		rig_die("out of memory");
	rig_call(cuMemHostRegister, (host->data, host->size, 0));
	return host->data;
}

static void host_free(struct host *host)
{
	if (host->data)
		rig_call(cuMemHostUnregister, (host->data));
	free(host->data);
}

/* ---- A row ------------------------------------------------------------------------------------------ */

/* A row, ready to be moved. */
struct turn {
	const struct bench_row *row;
	struct transform_spec spec;
	struct transform transform;
	struct plan plan;
	size_t dst_offset; /* of element [0, ..., 0] in a place */
	size_t src_offset;
	size_t dst_bytes; /* from the start of a place to the end of the tensor */
	size_t src_bytes;
	size_t pitch; /* from a place to the next, on either side */
	uint64_t n_places;
	uint64_t place; /* of the last call */
	int calls;      /* of either side in a run */
	int leads;      /* copies ahead of them, */
	size_t lead;    /* of that many bytes each */
	CUdeviceptr dst;
	CUdeviceptr src;
	CUevent event[3];
};

static size_t most_of(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int prepare(struct turn *turn, const struct bench_row *row, const struct program_options *options,
                   struct error *err)
{
	struct transform *t = &turn->transform;
	int64_t first;
	int r;

	*turn = (struct turn){ .row = row };
	r = bench_row_spec(row, &turn->spec, &first, err);
	if (r == 0)
		r = transform_init(t, &turn->spec, err);
	if (r < 0)
		return r;
	turn->dst_offset = (size_t)row->offset * t->element;
	turn->src_offset = (size_t)first * t->element;
	turn->dst_bytes = turn->dst_offset + (size_t)t->dst_extent.high;
	turn->src_bytes = turn->src_offset + (size_t)t->src_extent.high;
	for (int i = 0; i < 3; i++)
		rig_call(cuEventCreate, (&turn->event[i], CU_EVENT_DEFAULT));
	/* Room for the copy too, which takes its bytes from the same places. */
	turn->pitch = (most_of(most_of(turn->dst_bytes, turn->src_bytes), t->bytes / 2) / ALIGN + 2) * ALIGN;
	turn->n_places = most_of(2, options->quick ? 0 : 2 * (size_t)rig.device.l2_bytes / turn->pitch + 1);
	turn->calls = (int)(t->bytes ? SAMPLE_BYTES / t->bytes : 1);
	turn->calls = turn->calls < 1 ? 1 : turn->calls > MAX_CALLS ? MAX_CALLS : turn->calls;
	turn->leads = 1;
	turn->lead = LEAD;
	if (options->quick) {
		turn->calls = 2;
		turn->lead = ALIGN;
	}
	turn->dst = rig_new(turn->n_places * turn->pitch);
	turn->src = new_random(turn->n_places * turn->pitch);
	rig_call(cuMemsetD8Async, (turn->dst, POISON, turn->n_places * turn->pitch, rig.stream));
	rig_plan(&rig, t, turn->dst + turn->dst_offset, turn->src + turn->src_offset, &turn->plan);
	return 0;
}

static void dismiss(struct turn *turn)
{
	rig_free(turn->dst);
	rig_free(turn->src);
	for (int i = 0; i < 3; i++)
		rig_call(cuEventDestroy, (turn->event[i]));
}

/* How far the next place is from the first. */
static size_t next_place(struct turn *turn)
{
	turn->place = turn->place + 1 < turn->n_places ? turn->place + 1 : 0;
	return turn->place * turn->pitch;
}

static void copy(struct turn *turn)
{
	size_t at = next_place(turn);

	rig_call(cuMemcpyDtoDAsync, (turn->dst + at, turn->src + at, turn->transform.bytes / 2, rig.stream));
}

static void launch(struct turn *turn)
{
	size_t at = next_place(turn);

	rig_launch(&rig, &turn->transform, &turn->plan, turn->dst + at + turn->dst_offset,
	           turn->src + at + turn->src_offset);
}

/* What the last launch left. */
static int check(const struct turn *turn, struct error *err)
{
	size_t at = turn->place * turn->pitch;
	uint8_t *dst = host_room(&dst_host, turn->dst_bytes), *src = host_room(&src_host, turn->src_bytes);

	rig_call(cuMemcpyDtoHAsync, (dst, turn->dst + at, turn->dst_bytes, rig.stream));
	if (turn->src_bytes)
		rig_call(cuMemcpyDtoHAsync, (src, turn->src + at, turn->src_bytes, rig.stream));
	rig_wait(&rig);
	return bench_row_check(turn->row, &turn->spec, dst + turn->dst_offset, src + turn->src_offset, err);
}

/* ---- Time ------------------------------------------------------------------------------------------- */

/* Whether the host had enqueued all of it before the device began. */
static bool enqueue_run(struct turn *turn)
{
	for (int i = 0; i < turn->leads; i++)
		rig_call(cuMemcpyDtoDAsync, (lead_dst, lead_src, turn->lead, rig.stream));
	rig_call(cuEventRecord, (turn->event[0], rig.stream));
	for (int i = 0; i < turn->calls; i++)
		copy(turn);
	rig_call(cuEventRecord, (turn->event[1], rig.stream));
	for (int i = 0; i < turn->calls; i++)
		launch(turn);
	rig_call(cuEventRecord, (turn->event[2], rig.stream));
	return driver.cuEventQuery(turn->event[0]) == CUDA_ERROR_NOT_READY;
}

/* Nanoseconds a call. */
static double elapsed_ns(const struct turn *turn, CUevent start, CUevent end)
{
	float ms;

	rig_call(cuEventElapsedTime, (&ms, start, end));
	return (double)ms * 1e6 / turn->calls;
}

static void time_runs(struct turn *turn, struct report_row *ret)
{
	for (int run = -WARM_UPS; run < ret->n_runs; run++) {
		bool was_ahead = enqueue_run(turn);

		rig_wait(&rig);
		if (!was_ahead && turn->leads < MAX_LEADS) {
			turn->leads *= 2;
			run--;
			continue;
		}
		if (run >= 0) {
			ret->base_ns[run] = elapsed_ns(turn, turn->event[0], turn->event[1]);
			ret->ours_ns[run] = elapsed_ns(turn, turn->event[1], turn->event[2]);
		}
	}
}

static int measure_row(const struct bench_row *row, const struct program_options *options,
                       struct report_row *ret, struct error *err)
{
	struct turn turn;
	int r = prepare(&turn, row, options, err);

	if (r < 0)
		return r;
	launch(&turn);
	r = check(&turn, err);
	ret->n_runs = options->runs;
	ret->bytes = (double)turn.transform.bytes;
	snprintf(ret->family, sizeof(ret->family), "%s", family_names[turn.plan.family]);
	ret->predicted = turn.plan.predicted > 0 ? 1 / turn.plan.predicted : 0;
	ret->predicted_base_ns = copy_speed_ns(&rig.device.copy, turn.transform.bytes);
	explain_plan(&turn.plan, ret->explain, sizeof(ret->explain));
	if (r == 0) {
		time_runs(&turn, ret);
		r = check(&turn, err);
	}
	dismiss(&turn);
	return r;
}

/* ---- The program ------------------------------------------------------------------------------------ */

static double bar(const struct bench_row *row)
{
	return row->ragged ? 0.85 : 0.95;
}

static int open_device(const struct program_options *options, struct report *head, struct error *err)
{
	(void)options;
	is_open = rig_open(&rig, NULL, err);
	if (!is_open)
		return STATUS_DEVICE;
	make_random();
	lead_dst = rig_new(LEAD);
	lead_src = new_random(LEAD);
	snprintf(head->machine, sizeof(head->machine), "%s, driver %d.%d", rig.device.name,
	         rig.device.driver_version / 1000, rig.device.driver_version % 1000 / 10);
	snprintf(head->engine, sizeof(head->engine), "cuda engine's kernels");
	snprintf(head->base, sizeof(head->base), "copy");
	return 0;
}

static void close_device(void)
{
	if (!is_open)
		return;
	host_free(&dst_host);
	host_free(&src_host);
	rig_free(lead_src);
	rig_free(lead_dst);
	rig_free(random_bytes);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	static const struct program program = {
		.name = "bench_gpu",
		.about =
		    "The GPU's kernels against cuMemcpyDtoDAsync: as many bytes, in the same buffers, taking turns.\n"
		    "A row: what is done, element type, source shape, family; GB/s of both (bytes read plus written),\n"
		    "the ratio, what the middle half of the runs' ratios lies between, and the bar. All are medians.\n"
		    "Each row is checked before and after; a wrong byte ends the program with 1.\n",
		.runs = 15,
		.rows = bench_rows,
		.n_rows = sizeof(bench_rows) / sizeof(bench_rows[0]),
		.bar = bar,
		.open = open_device,
		.measure = measure_row,
		.close = close_device,
	};
	return program_main(&program, argc, argv);
}
