/* SPDX-License-Identifier: Apache-2.0 */
/* Measures requests to the service alone and beside a process that computes: how long they take, and how much
 * of the compute they leave.
 *
 * A row is measured alone, then beside. The figure for the compute is its rate beside the row, relative to
 * its rate just before, while the service is idle.
 */
#include <stdio.h>

#include "figures.h"
#include "neighbour.h"
#include "neighbour_load.h"
#include "neighbour_order.h"
#include "neighbour_sample.h"
#include "transpose.h"

#define SPIN_US       200 /* microseconds for which both sides of the ring spin */
#define DEVICE_DEPTH  4
#define HOST_DEPTH    2
#define YOUNG_WAIT_US 200.0
#define OLD_WAIT_US   20000.0

struct figure {
	struct latency latency;
	double rate; /* GB/s */
};

/* Either load or sample is NULL. */
struct row {
	const char *name;
	struct load *load;
	double part; /* fraction of the load's bytes that its rate counts */
	latency_sample *sample;
	void *arg;
};

static struct figure measure(const struct bench *bench, const struct row *row)
{
	struct figure figure = { 0 };

	if (row->load)
		figure.rate = load_rate(row->load, bench->scale->seconds) * row->part;
	else
		figure.latency = latency_measure(row->sample, row->arg, bench->scale);
	return figure;
}

static void row_print(const struct row *row, const struct figure *alone, const struct figure *beside,
                      double idle, double busy)
{
	if (row->load)
		printf("| %s | %.1f GB/s | %.1f GB/s | %.3f |", row->name, alone->rate, beside->rate,
		       beside->rate / alone->rate);
	else
		printf("| %s | %.1f / %.1f us | %.1f / %.1f us | %.2f |", row->name, alone->latency.p50,
		       alone->latency.p99, beside->latency.p50, beside->latency.p99,
		       beside->latency.p50 / alone->latency.p50);
	printf(" %.3g | %.3g | %.3f |\n", idle, busy, busy / idle);
	fflush(stdout);
}

/* Returns the figure measured alone. */
static struct figure row_run(struct bench *bench, const struct row *row)
{
	struct progress before, between, after;
	struct figure alone, beside;

	if (row->load)
		load_repeat(row->load, bench->scale->warm_up);
	alone = measure(bench, row);
	neighbour_go(&bench->neighbour);
	nap_us(bench->scale->settle_s * 1e6);
	before = neighbour_progress(&bench->neighbour);
	between = neighbour_progress_since(&bench->neighbour, &before, bench->scale->seconds / 2);
	beside = measure(bench, row);
	after = neighbour_progress(&bench->neighbour);
	neighbour_pause(&bench->neighbour);
	row_print(row, &alone, &beside, progress_tflops(&bench->neighbour, &before, &between),
	          progress_tflops(&bench->neighbour, &between, &after));
	return alone;
}

/* ---- One at a time ------------------------------------------------------------------------------------- */

static void small_rows(struct bench *bench)
{
	struct transpose call, larger;
	struct timed by_call = { transpose_served, &call }, by_ring = { transpose_by_ring, &call },
		     direct = { transpose_direct, &call }, ping = { transpose_ping, &call },
		     one = { transpose_served, &larger };
	const struct row rows[] = {
		{ .name = "ping", .sample = timed_sample, .arg = &ping },
		{ .name = "64 KiB transpose, launch and wait", .sample = timed_sample, .arg = &direct },
		{ .name = "64 KiB transpose by a call", .sample = timed_sample, .arg = &by_call },
		{ .name = "64 KiB transpose by a ring", .sample = timed_sample, .arg = &by_ring },
		{ .name = "1 MiB transpose by a call", .sample = timed_sample, .arg = &one },
	};
	double p50[sizeof rows / sizeof *rows];

	transpose_init(&call, &bench->rig, bench->client, bench->scale->call_side);
	transpose_init(&larger, &bench->rig, bench->client, bench->scale->short_side);
	transpose_open_ring(&call, SPIN_US);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		p50[i] = row_run(bench, &rows[i]).latency.p50;
	printf(
	    "\n64 KiB alone, p50: by a call %+.1f us from ping, launch and wait; by a ring %+.1f us from launch "
	    "and wait\n\n",
	    p50[2] - p50[0] - p50[1], p50[3] - p50[1]);
	transpose_deinit(&larger);
	transpose_deinit(&call);
}

/* ---- Many bytes ---------------------------------------------------------------------------------------- */

struct pieces {
	struct memory device[2], host[2]; /* [0] destination, [1] source */
};

static void load_row(struct bench *bench, const char *name, struct load *load, int depth, double part)
{
	const struct row row = { .name = name, .load = load, .part = part };

	load->depth = depth;
	row_run(bench, &row);
	load_deinit(load);
}

static void block_rows(struct bench *bench, struct pieces *pieces)
{
	const struct scale *scale = bench->scale;
	struct load load;

	load_init_blocks(&load, bench->client, LOAD_GATHER, &pieces->device[0], &pieces->host[1],
	                 scale->blocks, scale->block_bytes);
	load_row(bench, "gather of 8192 x 16 KiB, host to device", &load, HOST_DEPTH, 0.5);
	load_init_blocks(&load, bench->client, LOAD_SCATTER, &pieces->host[0], &pieces->device[1],
	                 scale->blocks, scale->block_bytes);
	load_row(bench, "scatter of 8192 x 16 KiB, device to host", &load, HOST_DEPTH, 0.5);
}

static void host_rows(struct bench *bench, struct pieces *pieces)
{
	const int64_t side = bench->scale->host_side;
	const size_t size = (size_t)(side * side) * 4;
	struct load load;

	load_init_copy(&load, bench->client, &pieces->device[0], &pieces->host[1], size);
	load_row(bench, "1 GiB in order, host to device", &load, HOST_DEPTH, 0.5);
	load_init_copy(&load, bench->client, &pieces->host[0], &pieces->device[1], size);
	load_row(bench, "1 GiB in order, device to host", &load, HOST_DEPTH, 0.5);
	load_init_square(&load, bench->client, &pieces->host[0], &pieces->host[1], side);
	load_row(bench, "1 GiB transposed, host to host, one way", &load, HOST_DEPTH, 0.5);
}

static void large_rows(struct bench *bench)
{
	const struct scale *scale = bench->scale;
	const size_t size = (size_t)(scale->host_side * scale->host_side) * 4;
	struct pieces pieces;
	struct load load;

	for (int i = 0; i < 2; i++) {
		memory_init(&pieces.device[i], bench->client, SIDE_DEVICE, size);
		memory_init(&pieces.host[i], bench->client, SIDE_HOST, size);
	}
	load_init_square(&load, bench->client, &pieces.device[0], &pieces.device[1], scale->device_side);
	load_row(bench, "256 MiB transposes on the device, 4 under way", &load, DEVICE_DEPTH, 1);
	block_rows(bench, &pieces);
	host_rows(bench, &pieces);
	for (int i = 0; i < 2; i++) {
		memory_deinit(&pieces.device[i]);
		memory_deinit(&pieces.host[i]);
	}
}

/* ---- Words --------------------------------------------------------------------------------------------- */

static void order_rows(struct bench *bench)
{
	static const struct {
		const char *name;
		enum side side;
		double age_us;
	} kinds[] = {
		{ "hand-over by a stream's words, after 0.2 ms", SIDE_DEVICE, YOUNG_WAIT_US },
		{ "hand-over by a stream's words, after 20 ms", SIDE_DEVICE, OLD_WAIT_US },
		{ "hand-over by the host's words, after 0.2 ms", SIDE_HOST, YOUNG_WAIT_US },
	};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct hand_over hand_over;
		const struct row row = { .name = kinds[i].name,
			                 .sample = hand_over_sample,
			                 .arg = &hand_over };

		hand_over_init(&hand_over, bench, kinds[i].side, kinds[i].age_us);
		row_run(bench, &row);
		hand_over_deinit(&hand_over);
	}
}

void rows_run(struct bench *bench)
{
	printf(
	    "\n| what; p50 / p99, or rate | alone | beside the compute | ratio | TFLOP/s, service idle | beside "
	    "it | kept |\n|---|---|---|---|---|---|---|\n");
	small_rows(bench);
	large_rows(bench);
	order_rows(bench);
	printf("\n");
}
