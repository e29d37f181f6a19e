/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the sectors of memory that the engine's kernels move for random rows with the least that each row
 * needs. The stand-in driver counts them, so a shape that wastes memory traffic is found without a GPU.
 *
 *    traffic [-v] [ROWS [SEED [FIRST]]]    Output is TAP. -v describes every row in a few lines.
 *
 * A row has 4 KiB to 1 MiB and depends only on SEED and its number. In every fourth row, both tensors begin
 * within a sector. Without arguments, rows of other seeds are added that once needed special care.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/rig.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"
#include "traffic.h"

#define DEFAULT_ROWS 2000
#define DEFAULT_SEED 20

/* Rows that once moved more than twice the least number of sectors. */
static const struct {
	uint64_t seed;
	uint64_t number;
} hard_rows[] = {
	/* Reversed along an axis that is contiguous on both sides. */
	{ 101, 355 },
	{ 104, 219 },
	{ 105, 104 },
	{ 106, 529 },
	/* The cheapest tile has runs that are too short. */
	{ 205, 502 },
	/* Borders of short rows, one of which no tile can have. */
	{ 206, 177 },
	{ 303, 406 },
	{ 508, 44 },
};

struct traffic {
	struct rig rig;
	struct traffic_report report;
	bool verbose;
	int wrong;
	int short_of; /* rows that moved less than the least number, which is an error of the test */
};

/* The memory of one row. */
struct places {
	CUdeviceptr dst_memory;
	CUdeviceptr src_memory;
	size_t dst_bytes;
	size_t src_bytes;
	uint64_t dst; /* addresses of elements [0, ..., 0] */
	uint64_t src;
	uint8_t *host; /* bytes of the source, followed by those of the destination */
};

static void must(int r, const struct error *err)
{
	if (r < 0)
		tap_bail_out("%s", err->message);
}

/* Allocates memory that just holds both tensors, at the row's alignment. */
static void places_init(struct places *ret, const struct bench_row *row, const struct transform_spec *spec,
                        int64_t first)
{
	const uint64_t size = dtype_size(row->dtype);
	const uint64_t dst_offset = (uint64_t)row->offset * size, src_offset = (uint64_t)first * size;
	uint64_t state = 1;

	ret->dst_bytes = dst_offset + (uint64_t)tensor_extent(&spec->dst).high;
	ret->src_bytes = src_offset + (uint64_t)tensor_extent(&spec->src).high;
	ret->dst_memory = rig_new(ret->dst_bytes);
	ret->src_memory = rig_new(ret->src_bytes);
	ret->dst = ret->dst_memory + dst_offset;
	ret->src = ret->src_memory + src_offset;
	ret->host = malloc(ret->src_bytes + ret->dst_bytes + sizeof(uint64_t));
	if (!ret->host)
		tap_bail_out("out of memory");
	for (size_t i = 0; i < ret->src_bytes; i += sizeof(uint64_t))
		memcpy(ret->host + i, &(uint64_t){ oracle_random(&state) }, sizeof(uint64_t));
}

static void places_deinit(struct places *places)
{
	free(places->host);
	rig_free(places->dst_memory);
	rig_free(places->src_memory);
}

static void describe_tile(const struct plan *plan, char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (int d = 0; d < plan->tile_rank && len < size; d++)
		len += (size_t)snprintf(text + len, size - len, "%s%" PRId64, d ? "x" : "", plan->tile[d]);
}

/* Runs the row and counts the sectors. */
static void move_row(struct traffic *traffic, const struct transform *transform, const struct places *places,
                     struct traffic_row *ret)
{
	struct rig *rig = &traffic->rig;
	struct plan plan;
	struct error err;

	rig_plan(rig, transform, places->dst, places->src, &plan);
	ret->strategy = plan.tma.strategy;
	describe_tile(&plan, ret->tile, sizeof ret->tile);
	rig_call(cuMemcpyHtoDAsync, (places->src_memory, places->host, places->src_bytes, rig->stream));
	rig_wait(rig);
	softgpu_count(&ret->counts);
	if (launch_transform(&rig->launcher, rig->stream, transform, &plan, places->dst, places->src, NULL,
	                     &err) < 0 ||
	    driver_call(&err, cuStreamSynchronize, (rig->stream)) < 0)
		tap_bail_out("row %" PRIu64 ": %s", ret->number, err.message);
	softgpu_count(NULL);
	rig_call(cuMemcpyDtoHAsync,
	         (places->host + places->src_bytes, places->dst_memory, places->dst_bytes, rig->stream));
	rig_wait(rig);
}

static void try_row(struct traffic *traffic, const struct bench_row *row, uint64_t number)
{
	struct traffic_row done = { .number = number, .row = *row };
	struct transform_spec spec;
	struct transform transform;
	struct places places;
	struct error err;
	int64_t first;

	snprintf(done.what, sizeof done.what, "%s", row->what);
	must(bench_row_spec(row, &spec, &first, &err), &err);
	must(transform_init(&transform, &spec, &err), &err);
	places_init(&places, row, &spec, first);
	if (!traffic_ideal_init(&done.ideal, &spec, places.dst, places.src))
		tap_bail_out("out of memory");
	move_row(traffic, &transform, &places, &done);
	if (bench_row_check(row, &spec, places.host + places.src_bytes + (places.dst - places.dst_memory),
	                    places.host + (places.src - places.src_memory), &err) < 0) {
		tap_note("row %" PRIu64 ": %s", number, err.message);
		traffic->wrong++;
	}
	places_deinit(&places);
	if (softgpu_sum(&done.counts.read) < done.ideal.read ||
	    softgpu_sum(&done.counts.written) < done.ideal.written) {
		tap_note("row %" PRIu64 " moved less than it has to", number);
		traffic->short_of++;
	}
	if (!traffic_report_add(&traffic->report, &done))
		tap_bail_out("out of memory");
	if (traffic->verbose)
		traffic_row_print(stdout, &traffic->report.rows[traffic->report.n - 1]);
}

static void draw_row(const struct random_rows *rows, uint64_t number, struct random_row *ret)
{
	random_row_draw(rows, number, ret);
	if (number % 4 == 3)
		ret->row.offset = 1 + (int64_t)(number / 4 % 31);
}

static void try_rows(struct traffic *traffic, uint64_t seed, uint64_t first, uint64_t n)
{
	const struct random_rows rows = { .seed = seed, .least = 4 << 10, .most = 1 << 20 };

	for (uint64_t i = first; i < first + n; i++) {
		struct random_row drawn;

		draw_row(&rows, i, &drawn);
		try_row(traffic, &drawn.row, i);
	}
}

int main(int argc, char **argv)
{
	struct traffic traffic = { .verbose = argc > 1 && !strcmp(argv[1], "-v") };
	const int skip = traffic.verbose;
	const uint64_t n =
	    argc > 1 + skip ? strtoull(argv[1 + skip], NULL, 0) : (uint64_t)tap_portion(DEFAULT_ROWS);
	const uint64_t first = argc > 3 + skip ? strtoull(argv[3 + skip], NULL, 0) : 0;
	const uint64_t seed = argc > 2 + skip ? strtoull(argv[2 + skip], NULL, 0) : DEFAULT_SEED;
	struct error err;
	double mean, worst;

	if (!rig_open(&traffic.rig, NULL, &err))
		return tap_skip_all("%s", err.message);
	try_rows(&traffic, seed, first, n);
	for (size_t i = 0; i < sizeof hard_rows / sizeof *hard_rows && argc <= 1 + skip; i++)
		try_rows(&traffic, hard_rows[i].seed, hard_rows[i].number, 1);
	rig_close(&traffic.rig);
	traffic_report_print(stdout, &traffic.report);
	mean = traffic_report_mean(&traffic.report);
	worst = traffic_report_worst(&traffic.report);
	traffic_report_deinit(&traffic.report);
	tap_case(traffic.wrong == 0, "%" PRIu64 " rows from seed %" PRIu64 " are right", n, seed);
	tap_case(traffic.short_of == 0, "each moves as much as it has to");
	tap_case(mean <= TRAFFIC_MEAN, "sectors are %.3f of the ideal in the geometric mean, at most %.2f",
	         mean, TRAFFIC_MEAN);
	tap_case(worst <= TRAFFIC_WORST, "and %.3f at worst, at most %.1f", worst, TRAFFIC_WORST);
	return tap_end();
}
