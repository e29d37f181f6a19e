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

#include "rig.h"
#include "tests/support/oracle.h"

#define RUNS       15
#define WARM_UPS   3
#define SAMPLES    20000
#define LEAST_SETS 2
#define RANDOM     (64u << 20)

struct row {
	const char *name;
	enum dtype dtype;
	int rank;
	int64_t shape[6]; /* of the source */
	int64_t perm[6];  /* absent: as it is */
	int64_t before[6];
	int64_t after[6];
	enum pad_mode mode;
	uint64_t value;
	int64_t gap;    /* elements between the source's rows */
	int64_t offset; /* of both, elements */
	bool broadcast; /* the outermost stride of the source is 0 */
	bool reversed;  /* the innermost stride of the source is -1 */
};

#define SQUARE(label, n, type)                                                                         \
	{                                                                                              \
		.name = "transpose " label, .dtype = type, .rank = 2, .shape = { n }, .perm = { 1, 0 } \
	}
#define SHAPE(...) __VA_ARGS__

static const struct row rows[] = {
	SQUARE("uint8 16384x16384", SHAPE(16384, 16384), DTYPE_UINT8),
	SQUARE("float16 16384x8192", SHAPE(16384, 8192), DTYPE_FLOAT16),
	SQUARE("float32 8192x8192", SHAPE(8192, 8192), DTYPE_FLOAT32),
	SQUARE("float64 8192x4096", SHAPE(8192, 4096), DTYPE_FLOAT64),
	SQUARE("complex128 4096x4096", SHAPE(4096, 4096), DTYPE_COMPLEX128),
	SQUARE("float32 32768x32768", SHAPE(32768, 32768), DTYPE_FLOAT32),
	SQUARE("float32 32768x2048 (16:1)", SHAPE(32768, 2048), DTYPE_FLOAT32),
	SQUARE("float32 2048x32768 (1:16)", SHAPE(2048, 32768), DTYPE_FLOAT32),
	SQUARE("float32 10000x6720", SHAPE(10000, 6720), DTYPE_FLOAT32),
	{ .name = "NHWC->NCHW float16 [320,56,56,256]",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 320, 56, 56, 256 },
	  .perm = { 0, 3, 1, 2 } },
	{ .name = "NCHW->NHWC float16 [320,256,56,56]",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 320, 256, 56, 56 },
	  .perm = { 0, 2, 3, 1 } },
	{ .name = "NHWC->NCHW uint8 [640,56,56,256]",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 640, 56, 56, 256 },
	  .perm = { 0, 3, 1, 2 } },
	{ .name = "NCHW->NHWC uint8 [640,256,56,56]",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 640, 256, 56, 56 },
	  .perm = { 0, 2, 3, 1 } },
	{ .name = "NHWC->NCHW float32 [64,112,112,128]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .shape = { 64, 112, 112, 128 },
	  .perm = { 0, 3, 1, 2 } },
	{ .name = "NCHW->NHWC float32 [64,128,112,112]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .shape = { 64, 128, 112, 112 },
	  .perm = { 0, 2, 3, 1 } },
	{ .name = "[B,S,H,D]->[B,H,S,D] bfloat16 [16,4096,32,128]",
	  .dtype = DTYPE_BFLOAT16,
	  .rank = 4,
	  .shape = { 16, 4096, 32, 128 },
	  .perm = { 0, 2, 1, 3 } },
	{ .name = "[B,H,S,D]->[B,S,H,D] bfloat16 [16,32,4096,128]",
	  .dtype = DTYPE_BFLOAT16,
	  .rank = 4,
	  .shape = { 16, 32, 4096, 128 },
	  .perm = { 0, 2, 1, 3 } },
	{ .name = "[B,S,H,D]->[B,H,S,D] uint8 D=64",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 32, 4096, 32, 64 },
	  .perm = { 0, 2, 1, 3 } },
	{ .name = "5-D reversal float32 [32,64,32,32,32]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 5,
	  .shape = { 32, 64, 32, 32, 32 },
	  .perm = { 4, 3, 2, 1, 0 } },
	{ .name = "3-D 2,0,1 float32 [512,512,256]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .shape = { 512, 512, 256 },
	  .perm = { 2, 0, 1 } },
	{ .name = "3-D 2,1,0 float32 [512,512,256]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .shape = { 512, 512, 256 },
	  .perm = { 2, 1, 0 } },
	{ .name = "3-D 1,0,2 float32 [512,512,256]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .shape = { 512, 512, 256 },
	  .perm = { 1, 0, 2 } },
	{ .name = "copy with row gaps float32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .gap = 64 },
	{ .name = "copy with row gaps uint8 1M x 256",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 1048576, 256 },
	  .gap = 64 },
	{ .name = "copy with row gaps uint8 4M x 64",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 4194304, 64 },
	  .gap = 64 },
	{ .name = "zero pad NHWC float16 1:1,1:1",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 320, 56, 56, 256 },
	  .before = { 0, 1, 1, 0 },
	  .after = { 0, 1, 1, 0 } },
	{ .name = "zero pad 2-D float32 4:4,4:4",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { 4, 4 },
	  .after = { 4, 4 } },
	{ .name = "zero pad 2-D float32 1:3 (unaligned)",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { 1, 1 },
	  .after = { 3, 3 } },
	{ .name = "zero pad 2-D uint8 3:13",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 16384, 16384 },
	  .before = { 3, 3 },
	  .after = { 13, 13 } },
	{ .name = "constant pad float32 4:4,4:4",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { 4, 4 },
	  .after = { 4, 4 },
	  .value = 7 },
	{ .name = "edge pad float32 4:4,4:4",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { 4, 4 },
	  .after = { 4, 4 },
	  .mode = PAD_MODE_EDGE },
	{ .name = "reflect pad NHWC float16 1:1,1:1",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 320, 56, 56, 256 },
	  .before = { 0, 1, 1, 0 },
	  .after = { 0, 1, 1, 0 },
	  .mode = PAD_MODE_REFLECT },
	{ .name = "zero pad NCHW float32 1:1,1:1 (odd rows)",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .shape = { 64, 128, 96, 96 },
	  .before = { 0, 0, 1, 1 },
	  .after = { 0, 0, 1, 1 } },
	{ .name = "crop float32 8192x8192 by 4",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { -4, -4 },
	  .after = { -4, -4 } },
	{ .name = "crop float32 by 1:3 (unaligned start)",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .before = { -1, -1 },
	  .after = { -3, -3 } },
	{ .name = "crop center NHWC float16 224 of 256",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 32, 256, 256, 64 },
	  .before = { 0, -16, -16, 0 },
	  .after = { 0, -16, -16, 0 } },
	{ .name = "broadcast float32 64 x 1M",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 64, 1048576 },
	  .broadcast = true },
	{ .name = "transpose+pad f32 8188x8188 2:2",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8188, 8188 },
	  .perm = { 1, 0 },
	  .before = { 2, 2 },
	  .after = { 2, 2 } },
	{ .name = "ragged transpose uint8 16383x16385",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 16383, 16385 },
	  .perm = { 1, 0 } },
	{ .name = "ragged transpose float16 16383x8193",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 2,
	  .shape = { 16383, 8193 },
	  .perm = { 1, 0 } },
	{ .name = "ragged transpose float32 8191x8193",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8191, 8193 },
	  .perm = { 1, 0 } },
	{ .name = "ragged transpose float64 8191x4097",
	  .dtype = DTYPE_FLOAT64,
	  .rank = 2,
	  .shape = { 8191, 4097 },
	  .perm = { 1, 0 } },
	{ .name = "unaligned base transpose float32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 1, 0 },
	  .offset = 1 },
	{ .name = "ragged rows float32 1003, dst gap",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 70000, 1003 },
	  .gap = 1 },
	{ .name = "ragged rows uint8 1003, gap",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 280000, 1003 },
	  .gap = 2 },
	{ .name = "ragged rows float16 crop 1",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 2,
	  .shape = { 16384, 8191 },
	  .before = { 0, -1 },
	  .after = { 0, 0 } },
	{ .name = "reversed rows float32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .reversed = true },
	{ .name = "reversed rows uint8 16384x16384",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 16384, 16384 },
	  .reversed = true },
	{ .name = "NHWC->NCHW uint8 [1024,224,224,3]",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 1024, 224, 224, 3 },
	  .perm = { 0, 3, 1, 2 } },
	{ .name = "NCHW->NHWC uint8 [1024,3,224,224]",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 1024, 3, 224, 224 },
	  .perm = { 0, 2, 3, 1 } },
	{ .name = "6-D reversal float32",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 6,
	  .shape = { 16, 16, 32, 16, 16, 32 },
	  .perm = { 5, 4, 3, 2, 1, 0 } },
	{ .name = "fill: pad an empty tensor float32",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 0, 8192 },
	  .before = { 8192, 0 },
	  .value = 3 },
};

/* ---- A row's transform ------------------------------------------------------------------------------------
 */

static void row_spec(const struct row *row, struct transform_spec *spec, int64_t *ret_first)
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

static void check(struct rig *rig, const struct row *row, const struct transform *t, CUdeviceptr dst,
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

static void run_row(struct rig *rig, const struct row *row)
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
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (is_wanted(rows[i].name, argc, argv))
			run_row(&rig, &rows[i]);
	rig_free(random_bytes);
	rig_close(&rig);
	return 0;
}
