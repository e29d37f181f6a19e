/* How fast the device moves tensors, against its own copy of as many bytes in the same run.
 *
 *   bench_gpu [PART-OF-A-NAME]
 *
 * A row: its shape and what is done to it, the family, GB/s (bytes read plus bytes written), the ratio to
 * cuMemcpyDtoDAsync of the same number of bytes, medians of RUNS that take turns. Data is random; buffers
 * rotate, so that nothing is found in the L2. Elements of the result are compared with the source.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_rows.h"
#include "rig.h"
#include "tests/support/oracle.h"

#define RUNS       15
#define WARM_UPS   3
#define SAMPLES    20000
#define LEAST_SETS 2
#define RANDOM     (64u << 20)

/* ---- A row's transform ------------------------------------------------------------------------------------
 */

static void row_spec(const struct bench_row *row, struct transform_spec *spec, int64_t *ret_first)
{
	int64_t stride[6], shape[6], step = 1;
	bool moved = false;
	struct error err;

	*spec = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	spec->value.u = row->value;
	for (int d = row->rank - 1; d >= 0; d--) {
		stride[d] = step;
		step = step * row->shape[d] + (d == row->rank - 1 ? row->gap : 0);
		moved = moved || row->perm[d];
	}
	*ret_first = row->offset;
	if (row->broadcast)
		stride[0] = 0;
	if (row->reversed) {
		*ret_first += row->shape[row->rank - 1] - 1;
		stride[row->rank - 1] = -1;
	}
	for (int d = 0; d < row->rank; d++) {
		spec->perm[d] = moved ? row->perm[d] : d;
		spec->before[d] = row->before[d];
		spec->after[d] = row->after[d];
		shape[d] = row->shape[spec->perm[d]] + row->before[d] + row->after[d];
	}
	if (tensor_layout_init(&spec->src, row->dtype, row->rank, row->shape, stride, "src", &err) < 0 ||
	    tensor_layout_init(&spec->dst, row->dtype, row->rank, shape, NULL, "dst", &err) < 0)
		rig_die("%s: %s", row->name, err.message);
}

/* ---- Data
 * --------------------------------------------------------------------------------------------------- */

static CUdeviceptr random_bytes;

static void make_random(struct rig *rig)
{
	uint64_t *host = malloc(RANDOM), state = 1;

	if (!host)
		rig_die("out of memory");
	for (size_t i = 0; i < RANDOM / 8; i++)
		host[i] = oracle_random(&state);
	random_bytes = rig_new(RANDOM);
	rig_call(cuMemcpyHtoDAsync, (random_bytes, host, RANDOM, rig->stream));
	rig_wait(rig);
	free(host);
}

static CUdeviceptr new_random(struct rig *rig, size_t size)
{
	CUdeviceptr memory = rig_new(size);

	for (size_t at = 0; at < size; at += RANDOM)
		rig_call(cuMemcpyDtoDAsync,
		         (memory + at, random_bytes, size - at < RANDOM ? size - at : RANDOM, rig->stream));
	return memory;
}

/* ---- Checking: elements by chance, their source found one index at a time
 * -------------------------------------- */

static void check(struct rig *rig, const struct bench_row *row, const struct transform *t, CUdeviceptr dst,
                  size_t dst_bytes, CUdeviceptr src, size_t src_bytes, int64_t first)
{
	uint8_t *got = malloc(dst_bytes), *from = malloc(src_bytes ? src_bytes : 1);
	uint64_t state = 7;

	if (!got || !from)
		rig_die("out of memory");
	rig_call(cuMemcpyDtoHAsync, (got, dst, dst_bytes, rig->stream));
	if (src_bytes)
		rig_call(cuMemcpyDtoHAsync, (from, src, src_bytes, rig->stream));
	rig_wait(rig);
	for (int i = 0; i < SAMPLES; i++) {
		int64_t to = row->offset * t->element, at = first * t->element + t->src_shift;
		bool fill = false;

		for (int d = 0; d < t->rank; d++) {
			const struct transform_axis *axis = &t->axis[d];
			int64_t high = axis->extent - 1, o = oracle_between(&state, 0, high), s;

			if (i % 4 == 0) /* ends, where borders are */
				o = oracle_between(&state, 0, 1) ? o % (high < 9 ? high + 1 : 9)
				                                 : high - o % (high < 9 ? high + 1 : 9);
			s = oracle_index(o, axis->before, axis->source, t->mode);
			fill = fill || s < 0;
			to += o * axis->dst_stride;
			at += s * axis->src_stride;
		}
		if (memcmp(got + to, fill ? t->fill : from + at, t->element)) {
			rig_die("%s: wrong at byte %" PRId64 " of the destination", row->name, to);
		}
	}
	free(got);
	free(from);
}

/* ---- Timing
 * ---------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values)
{
	qsort(values, RUNS, sizeof *values, by_value);
	return values[RUNS / 2];
}

static double elapsed_ns(CUevent start, CUevent end)
{
	float ms;

	rig_call(cuEventElapsedTime, (&ms, start, end));
	return (double)ms * 1e6;
}

static void run_row(struct rig *rig, const struct bench_row *row)
{
	struct transform_spec spec;
	struct transform t;
	struct plan plan;
	struct error err;
	int64_t first;
	double moved[RUNS], copied[RUNS];
	CUevent event[3];
	CUdeviceptr dst[LEAST_SETS], src[LEAST_SETS];

	row_spec(row, &spec, &first);
	if (transform_init(&t, &spec, &err) < 0)
		rig_die("%s: %s", row->name, err.message);
	size_t offset = (size_t)row->offset * t.element;
	size_t dst_bytes = (size_t)t.dst_extent.high + offset;
	size_t src_bytes = (size_t)(t.src_extent.high + first * t.element), half = t.bytes / 2;

	/* The copy takes its bytes from the same buffers where they are large enough, else from the larger
	 * ones. */
	size_t room = (dst_bytes > half ? dst_bytes : half) + 256,
	       source = (src_bytes > half ? src_bytes : half) + 256;

	for (int i = 0; i < 3; i++)
		rig_call(cuEventCreate, (&event[i], CU_EVENT_DEFAULT));
	for (int i = 0; i < LEAST_SETS; i++) {
		dst[i] = rig_new(room);
		src[i] = new_random(rig, source);
		rig_call(cuMemsetD8Async, (dst[i], 0xa5, room, rig->stream));
	}
	rig_plan(rig, &t, dst[0] + offset, src[0] + (uint64_t)first * t.element, &plan);
	for (int run = -WARM_UPS; run < RUNS; run++) {
		int set = (run + WARM_UPS) % LEAST_SETS;

		rig_call(cuEventRecord, (event[0], rig->stream));
		rig_call(cuMemcpyDtoDAsync, (dst[set], src[set], half, rig->stream));
		rig_call(cuEventRecord, (event[1], rig->stream));
		rig_launch(rig, &t, &plan, dst[set] + offset, src[set] + (uint64_t)first * t.element);
		rig_call(cuEventRecord, (event[2], rig->stream));
		rig_wait(rig);
		if (run >= 0) {
			copied[run] = elapsed_ns(event[0], event[1]);
			moved[run] = elapsed_ns(event[1], event[2]);
		}
	}
	double copy = median(copied), move = median(moved), low = moved[0], high = moved[RUNS - 1];

	printf("%-50s %-14s %8.0f %8.0f %6.2f  %4.1f%%\n", row->name, family_names[plan.family],
	       (double)t.bytes / copy, (double)t.bytes / move, copy / move, 100 * (high - low) / move);
	if (plan.family == FAMILY_STRIDED)
		for (int i = 0; i < plan.n_rules; i++)
			printf("    not %s: %s\n", family_names[plan.rules[i].family], plan.rules[i].text);
	fflush(stdout);
	for (int i = 0; i < LEAST_SETS; i++)
		check(rig, row, &t, dst[i], dst_bytes, src[i], src_bytes, first);
	for (int i = 0; i < LEAST_SETS; i++) {
		rig_free(dst[i]);
		rig_free(src[i]);
	}
	for (int i = 0; i < 3; i++)
		rig_call(cuEventDestroy, (event[i]));
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	struct rig rig;
	struct error err;

	if (!rig_open(&rig, NULL, &err)) {
		fprintf(stderr, "bench_gpu: %s\n", err.message);
		return 1;
	}
	printf("%s, driver %d.%d; GB/s read plus written, medians of %d\n", rig.device.name,
	       rig.device.driver_version / 1000, rig.device.driver_version % 1000 / 10, RUNS);
	printf("%-50s %-14s %8s %8s %6s %6s\n", "", "family", "copy", "tmad", "ratio", "spread");
	make_random(&rig);
	for (size_t i = 0; i < sizeof bench_rows / sizeof bench_rows[0]; i++)
		if (is_wanted(bench_rows[i].name, argc, argv))
			run_row(&rig, &bench_rows[i]);
	rig_free(random_bytes);
	rig_close(&rig);
	return 0;
}
