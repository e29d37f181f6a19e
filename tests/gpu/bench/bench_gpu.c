/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the device moves tensors, against its own copy of as many bytes in the same run.
 *
 * Compared are the kernel of a plan and cuMemcpyDtoDAsync of the same number of bytes, by the device's
 * events. They take turns on the same buffers, two sets of them, each larger than the L2, so that nothing is
 * found in it. Data is random. Rows are in bench_rows.h; tests/bench/program.h has the command line and the
 * table.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench_rows.h"
#include "tests/bench/explain.h"
#include "tests/bench/program.h"
#include "tests/gpu/rig.h"
#include "tests/support/oracle.h"

#define WARM_UPS 3
#define SETS     2
#define RANDOM   (64u << 20)
#define POISON   0xa5

static struct rig rig;
static bool is_open;
static CUdeviceptr random_bytes;

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

/* ---- A row ------------------------------------------------------------------------------------------ */

/* A row, ready to be moved. */
struct turn {
	const struct bench_row *row;
	struct transform_spec spec;
	struct transform transform;
	struct plan plan;
	size_t dst_offset; /* of element [0, ..., 0] */
	size_t src_offset;
	size_t dst_bytes; /* from the start of the memory to the end of the tensor */
	size_t src_bytes;
	CUdeviceptr dst[SETS];
	CUdeviceptr src[SETS];
	CUevent event[3];
};

static size_t most_of(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int prepare(struct turn *turn, const struct bench_row *row, struct error *err)
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
	/* Room for the copy too, which takes its bytes from the same buffers. */
	size_t half = t->bytes / 2, room = most_of(turn->dst_bytes, half) + 256;
	for (int i = 0; i < SETS; i++) {
		turn->dst[i] = rig_new(room);
		turn->src[i] = new_random(most_of(turn->src_bytes, half) + 256);
		rig_call(cuMemsetD8Async, (turn->dst[i], POISON, room, rig.stream));
	}
	rig_plan(&rig, t, turn->dst[0] + turn->dst_offset, turn->src[0] + turn->src_offset, &turn->plan);
	return 0;
}

static void dismiss(struct turn *turn)
{
	for (int i = 0; i < SETS; i++) {
		rig_free(turn->dst[i]);
		rig_free(turn->src[i]);
	}
	for (int i = 0; i < 3; i++)
		rig_call(cuEventDestroy, (turn->event[i]));
}

static void launch(const struct turn *turn, int set)
{
	rig_launch(&rig, &turn->transform, &turn->plan, turn->dst[set] + turn->dst_offset,
	           turn->src[set] + turn->src_offset);
}

static int check(const struct turn *turn, int set, struct error *err)
{
	uint8_t *dst = malloc(turn->dst_bytes), *src = malloc(most_of(turn->src_bytes, 1));

	if (!dst || !src)
		rig_die("out of memory");
	rig_call(cuMemcpyDtoHAsync, (dst, turn->dst[set], turn->dst_bytes, rig.stream));
	if (turn->src_bytes)
		rig_call(cuMemcpyDtoHAsync, (src, turn->src[set], turn->src_bytes, rig.stream));
	rig_wait(&rig);
	int r = bench_row_check(turn->row, &turn->spec, dst + turn->dst_offset, src + turn->src_offset, err);
	free(dst);
	free(src);
	return r;
}

static double elapsed_ns(CUevent start, CUevent end)
{
	float ms;

	rig_call(cuEventElapsedTime, (&ms, start, end));
	return (double)ms * 1e6;
}

static void time_runs(const struct turn *turn, struct report_row *ret)
{
	for (int run = -WARM_UPS; run < ret->n_runs; run++) {
		int set = (run + WARM_UPS) % SETS;

		rig_call(cuEventRecord, (turn->event[0], rig.stream));
		rig_call(cuMemcpyDtoDAsync,
		         (turn->dst[set], turn->src[set], turn->transform.bytes / 2, rig.stream));
		rig_call(cuEventRecord, (turn->event[1], rig.stream));
		launch(turn, set);
		rig_call(cuEventRecord, (turn->event[2], rig.stream));
		rig_wait(&rig);
		if (run >= 0) {
			ret->base_ns[run] = elapsed_ns(turn->event[0], turn->event[1]);
			ret->ours_ns[run] = elapsed_ns(turn->event[1], turn->event[2]);
		}
	}
}

static int measure_row(const struct bench_row *row, const struct program_options *options,
                       struct report_row *ret, struct error *err)
{
	struct turn turn;
	int r = prepare(&turn, row, err);

	if (r < 0)
		return r;
	launch(&turn, 0);
	r = check(&turn, 0, err);
	ret->n_runs = options->runs;
	ret->bytes = (double)turn.transform.bytes;
	snprintf(ret->family, sizeof(ret->family), "%s", family_names[turn.plan.family]);
	explain_plan(&turn.plan, ret->explain, sizeof(ret->explain));
	if (r == 0) {
		time_runs(&turn, ret);
		r = check(&turn, SETS - 1, err);
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
