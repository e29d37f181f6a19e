/* Lists of blocks and batches, one request each, against the driver's ways to do as much: one copy of as many
 * bytes, a loop of cuMemcpyAsync, and cuMemcpyBatchAsync.
 *
 *   bench_blocks [RUNS [ONE-IN]]    15 runs; for trials a ONE-INth of the blocks
 *
 * Times are from the first call to when all of it has ended, by the host's clock: what is saved on the host
 * counts. For ours the device's own time is there too. Each row is done twice, also without the unit. Each
 * run takes other blocks and another destination, so that little is found in the L2. Medians. Every row is
 * checked, each block of it; a wrong byte ends the program with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench_blocks_base.h"
#include "kernels/block_plan.h"
#include "kernels/cuda/desk.h"
#include "kernels/cuda/launch_many.h"
#include "rig.h"
#include "tests/support/oracle.h"

#define WARM_UPS 3
#define MOST     101
#define SETS     4

enum what { GATHER, SCATTER, BATCH };
enum place { DEVICE, HOST };

struct row {
	enum what what;
	enum place dst, src;
	uint32_t n;
	uint32_t bytes;
	bool permuted; /* [16, 8, 128] to [8, 16, 128] of 2 bytes, as often as it takes */
};

static const struct row rows[] = {
	{ GATHER, DEVICE, DEVICE, 8192, 4 << 10, false },
	{ GATHER, DEVICE, DEVICE, 8192, 16 << 10, false },
	{ GATHER, DEVICE, DEVICE, 8192, 32 << 10, false },
	{ GATHER, DEVICE, DEVICE, 8192, 64 << 10, false },
	{ GATHER, DEVICE, DEVICE, 8192, 32 << 10, true },
	{ GATHER, DEVICE, DEVICE, 256, 32 << 10, false },
	{ GATHER, DEVICE, DEVICE, 64, 4 << 10, false },
	{ SCATTER, DEVICE, DEVICE, 8192, 4 << 10, false },
	{ SCATTER, DEVICE, DEVICE, 8192, 16 << 10, false },
	{ SCATTER, DEVICE, DEVICE, 8192, 64 << 10, false },
	{ SCATTER, DEVICE, DEVICE, 8192, 32 << 10, true },
	{ BATCH, DEVICE, DEVICE, 4096, 4 << 10, false },
	{ BATCH, DEVICE, DEVICE, 4096, 16 << 10, false },
	{ BATCH, DEVICE, DEVICE, 4096, 64 << 10, false },
	{ GATHER, DEVICE, HOST, 8192, 4 << 10, false },
	{ GATHER, DEVICE, HOST, 4096, 16 << 10, false },
	{ GATHER, DEVICE, HOST, 2048, 64 << 10, false },
	{ GATHER, DEVICE, HOST, 2048, 32 << 10, true },
	{ SCATTER, HOST, DEVICE, 8192, 4 << 10, false },
	{ SCATTER, HOST, DEVICE, 4096, 16 << 10, false },
	{ SCATTER, HOST, DEVICE, 2048, 64 << 10, false },
	{ GATHER, HOST, DEVICE, 2048, 32 << 10, true },
};

static struct rig rig;
static struct desk desk;
static CUevent events[2];

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- Memory ---------------------------------------------------------------------------------------------
 */

struct memory {
	enum place place;
	size_t size;
	CUdeviceptr address;
	void *host;
};

static struct memory new_memory(enum place place, size_t size)
{
	struct memory memory = { .place = place, .size = size };

	if (place == DEVICE) {
		memory.address = rig_new(size);
		return memory;
	}
	memory.host =
	    mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory.host == MAP_FAILED)
		rig_die("out of memory");
	rig_call(cuMemHostRegister, (memory.host, size, CU_MEMHOSTREGISTER_DEVICEMAP));
	rig_call(cuMemHostGetDevicePointer, (&memory.address, memory.host, 0));
	return memory;
}

static void free_memory(const struct memory *memory)
{
	if (memory->place == DEVICE) {
		rig_free(memory->address);
		return;
	}
	rig_call(cuMemHostUnregister, (memory->host));
	munmap(memory->host, memory->size);
}

static void fill(const struct memory *memory, uint64_t seed)
{
	enum { STRETCH = 1 << 20 };
	static uint64_t words[STRETCH / 8];

	for (size_t i = 0; i < STRETCH / 8; i++)
		words[i] = oracle_random(&seed);
	for (size_t at = 0; at < memory->size; at += STRETCH) {
		const size_t n = memory->size - at < STRETCH ? memory->size - at : STRETCH;

		words[0] = at + seed;
		for (size_t i = 0; i < n / 8; i += 512)
			words[i] = oracle_random(&seed);
		rig_call(cuMemcpyAsync, (memory->address + at, (CUdeviceptr)words, n, rig.stream));
		rig_wait(&rig);
	}
}

/* ---- A row ----------------------------------------------------------------------------------------------
 */

/* A row's blocks: set s of the indexed side are index[s * n] and those that follow; the other side's are
 * block s
 * * n and those that follow. */
struct turn {
	struct row row;
	bool plain; /* by the kernels without the unit */
	struct memory dst, src;
	int32_t *index;
	struct transform_spec spec;
	struct transform transform;
	struct copies copies; /* of the set at hand */
	struct plan plan;
};

static void shuffle(int32_t *index, uint32_t n)
{
	uint64_t state = 11;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = (uint32_t)(oracle_random(&state) % (i + 1));

		index[i] = index[at];
		index[at] = (int32_t)i;
	}
}

static void set_spec(struct turn *turn)
{
	struct transform_spec *spec = &turn->spec;
	const int64_t bytes = turn->row.bytes, tokens = bytes / 2 / 8 / 128;
	struct error err;

	*spec = (struct transform_spec){ .n_perm = -1, .n_before = -1, .n_after = -1 };
	if (turn->row.permuted) {
		spec->n_perm = 3;
		memcpy(spec->perm, (int64_t[]){ 1, 0, 2 }, 3 * sizeof *spec->perm);
		tensor_layout_init(&spec->src, DTYPE_BFLOAT16, 3, (int64_t[]){ tokens, 8, 128 }, NULL, "src",
		                   &err);
		tensor_layout_init(&spec->dst, DTYPE_BFLOAT16, 3, (int64_t[]){ 8, tokens, 128 }, NULL, "dst",
		                   &err);
	} else {
		tensor_layout_init(&spec->src, DTYPE_UINT8, 1, &bytes, NULL, "src", &err);
		tensor_layout_init(&spec->dst, DTYPE_UINT8, 1, &bytes, NULL, "dst", &err);
	}
	if (transform_init(&turn->transform, spec, &err) < 0)
		rig_die("%s", err.message);
}

static void prepare(struct turn *turn, const struct row *row, bool plain)
{
	const uint32_t all = row->n * SETS;

	*turn = (struct turn){ .row = *row, .plain = plain };
	turn->dst = new_memory(row->dst, (size_t)all * row->bytes);
	turn->src = new_memory(row->src, (size_t)all * row->bytes);
	fill(&turn->src, 1);
	fill(&turn->dst, 2);
	turn->index = malloc(all * sizeof *turn->index);
	turn->copies.dst = malloc(row->n * sizeof *turn->copies.dst);
	turn->copies.src = malloc(row->n * sizeof *turn->copies.src);
	turn->copies.size = malloc(row->n * sizeof *turn->copies.size);
	if (!turn->index || !turn->copies.dst || !turn->copies.src || !turn->copies.size)
		rig_die("out of memory");
	shuffle(turn->index, all);
	set_spec(turn);
}

static void dismiss(struct turn *turn)
{
	free_memory(&turn->dst);
	free_memory(&turn->src);
	free(turn->index);
	free(turn->copies.dst);
	free(turn->copies.src);
	free(turn->copies.size);
}

/* Blocks of the set: entry i's on both sides. */
static uint32_t dst_block(const struct turn *turn, int set, uint32_t i)
{
	const uint32_t at = (uint32_t)set * turn->row.n + i;

	return turn->row.what == GATHER ? at : (uint32_t)turn->index[at];
}

static uint32_t src_block(const struct turn *turn, int set, uint32_t i)
{
	const uint32_t at = (uint32_t)set * turn->row.n + i;

	return turn->row.what == GATHER ? (uint32_t)turn->index[at] : at;
}

static void set_copies(struct turn *turn, int set)
{
	turn->copies.n = turn->row.n;
	for (uint32_t i = 0; i < turn->row.n; i++) {
		turn->copies.dst[i] = turn->dst.address + (size_t)dst_block(turn, set, i) * turn->row.bytes;
		turn->copies.src[i] = turn->src.address + (size_t)src_block(turn, set, i) * turn->row.bytes;
		turn->copies.size[i] = turn->row.bytes;
	}
}

static void must(int r, const struct error *err)
{
	if (r < 0)
		rig_die("%s", err->message);
}

static void plan_list(struct turn *turn, const struct engine_blocks *blocks, uint64_t dst, uint64_t src)
{
	const struct plan_facts facts = {
		.engine = "cuda", .threads = rig.device.processors, .align = 16, .tma = true, .spread = true
	};

	if (turn->plain)
		plan_init(&turn->plan, &turn->transform, &facts);
	else
		block_plan_init(&turn->plan, &turn->transform, blocks, &facts, dst, src);
}

/* As the engine does it: the list on the desk, a launch. */
static void run_list(struct turn *turn, int set)
{
	const struct row *row = &turn->row;
	const uint64_t other = (uint64_t)set * row->n * row->bytes;
	const bool scatter = row->what == SCATTER;
	const struct engine_blocks blocks = { .n = row->n,
		                              .layers = 1,
		                              .scatter = scatter,
		                              .index_bytes = 4,
		                              .limit = (uint64_t)row->n * SETS,
		                              .dst.step = row->bytes,
		                              .src.step = row->bytes };
	const uint64_t dst = turn->dst.address + (scatter ? 0 : other),
		       src = turn->src.address + (scatter ? other : 0);
	struct error err;
	uint64_t base;
	void *index;

	must(desk_begin(&desk, &err), &err);
	index = desk_take(&desk, row->n * sizeof *turn->index);
	memcpy(index, turn->index + (size_t)set * row->n, row->n * sizeof *turn->index);
	must(desk_send(&desk, rig.stream, &base, &err), &err);
	plan_list(turn, &blocks, dst, src);
	const struct block_list list = { .index = desk_place(&desk, base, index),
		                         .dst_step = row->bytes,
		                         .src_step = row->bytes,
		                         .limit = blocks.limit,
		                         .scatter = scatter,
		                         .by_n = divisor_of(row->n) };
	must(launch_blocks(&rig.launcher, rig.stream, &turn->transform, &turn->plan, dst, src, &blocks, &list,
	                   &err),
	     &err);
}

static void run_batch(struct turn *turn, int set)
{
	const uint64_t parts = (turn->row.bytes + ROW_BYTES - 1) / ROW_BYTES;
	struct run_entry *runs;
	struct error err;
	uint64_t base;

	must(desk_begin(&desk, &err), &err);
	runs = desk_take(&desk, turn->row.n * sizeof *runs);
	for (uint32_t i = 0; i < turn->row.n; i++)
		runs[i] = (struct run_entry){
			.dst = turn->dst.address + (size_t)dst_block(turn, set, i) * turn->row.bytes,
			.src = turn->src.address + (size_t)src_block(turn, set, i) * turn->row.bytes,
			.bytes = turn->row.bytes,
			.first = i * parts,
		};
	must(desk_send(&desk, rig.stream, &base, &err), &err);
	must(launch_runs(&rig.launcher, rig.stream, desk_place(&desk, base, runs), turn->row.n,
	                 parts * turn->row.n, !turn->plain, &err),
	     &err);
}

static void run_ours(struct turn *turn, int set)
{
	if (turn->row.what == BATCH)
		run_batch(turn, set);
	else
		run_list(turn, set);
}

/* ---- Checks ---------------------------------------------------------------------------------------------
 */

static void is_right(struct turn *turn, int set, const char *what)
{
	const size_t bytes = turn->row.bytes;
	char *dst = malloc(turn->dst.size), *src = malloc(turn->src.size), *wanted = malloc(bytes);

	if (!dst || !src || !wanted)
		rig_die("out of memory");
	rig_call(cuMemcpyAsync, ((CUdeviceptr)dst, turn->dst.address, turn->dst.size, rig.stream));
	rig_call(cuMemcpyAsync, ((CUdeviceptr)src, turn->src.address, turn->src.size, rig.stream));
	rig_wait(&rig);
	for (uint32_t i = 0; i < turn->row.n; i++) {
		const char *from = src + src_block(turn, set, i) * bytes;
		const size_t tokens = bytes / 2048;

		memcpy(wanted, from, bytes);
		for (size_t t = 0; turn->row.permuted && t < tokens; t++)
			for (size_t h = 0; h < 8; h++)
				memcpy(wanted + (h * tokens + t) * 256, from + (t * 8 + h) * 256, 256);
		if (memcmp(dst + dst_block(turn, set, i) * bytes, wanted, bytes) != 0)
			rig_die("%s: block %u of %zu bytes is wrong", what, i, bytes);
	}
	free(dst);
	free(src);
	free(wanted);
}

/* ---- Times ----------------------------------------------------------------------------------------------
 */

enum way { OURS, COPY, LOOP, OWN_BATCH, WAYS };

static void run_way(struct turn *turn, enum way way, int set)
{
	const size_t half = (size_t)turn->row.n * turn->row.bytes;

	switch (way) {
	case OURS:
		run_ours(turn, set);
		break;
	case COPY:
		rig_call(cuMemcpyAsync,
		         (turn->dst.address + set * half, turn->src.address + set * half, half, rig.stream));
		break;
	case LOOP:
		base_loop(&turn->copies, rig.stream);
		break;
	default:
		base_batch(&turn->copies, rig.stream);
		break;
	}
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, by_value);
	return values[n / 2];
}

static const char *const places[] = { "device", "host" };
static const char *const whats[] = { "gather", "scatter", "batch" };

static void print(const struct turn *turn, double (*times)[MOST], double *device, int runs)
{
	const struct row *row = &turn->row;
	const double bytes = 2.0 * row->n * row->bytes;
	double ns[WAYS], own = median(device, runs);

	for (int way = 0; way < WAYS; way++)
		ns[way] = median(times[way], runs);
	printf("%-7s %-6s %-6s %5u x %2u KiB %-9s %-5s %8.1f us %8.1f us %7.1f GB/s %6.2f ", whats[row->what],
	       places[row->src], places[row->dst], row->n, row->bytes >> 10, row->permuted ? "permuted" : "",
	       turn->plain ? "plain" : "unit", ns[OURS] / 1e3, own / 1e3, bytes / own, ns[COPY] / ns[OURS]);
	printf("%7.2f ", ns[LOOP] / ns[OURS]);
	if (base_batch_missing())
		printf("      -\n");
	else
		printf("%7.2f\n", ns[OWN_BATCH] / ns[OURS]);
	fflush(stdout);
}

static void time_row(const struct row *row, int runs, bool plain)
{
	static double times[WAYS][MOST], device[MOST];
	struct turn turn;

	prepare(&turn, row, plain);
	run_ours(&turn, 0);
	is_right(&turn, 0, "first");
	for (int run = -WARM_UPS; run < runs; run++) {
		for (int way = WAYS - 1; way >= 0; way--) {
			const int set = (run + WARM_UPS + way) % SETS; /* none is the one before's */

			if (way == OWN_BATCH && base_batch_missing())
				continue;
			set_copies(&turn, set);
			const double start = now_ns();

			if (way == OURS)
				rig_call(cuEventRecord, (events[0], rig.stream));
			run_way(&turn, (enum way)way, set);
			if (way == OURS)
				rig_call(cuEventRecord, (events[1], rig.stream));
			rig_wait(&rig);
			if (run >= 0)
				times[way][run] = now_ns() - start;
		}
		float ms;

		rig_call(cuEventElapsedTime, (&ms, events[0], events[1]));
		if (run >= 0)
			device[run] = (double)ms * 1e6;
	}
	is_right(&turn, (runs - 1 + WARM_UPS + OURS) % SETS, "last");
	print(&turn, times, device, runs);
	dismiss(&turn);
}

int main(int argc, char **argv)
{
	const int runs = argc > 1 ? atoi(argv[1]) : 15;
	const uint32_t one_in = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	struct error err;

	if (runs < 1 || runs > MOST || one_in < 1)
		rig_die("bench_blocks [RUNS [ONE-IN]]");
	if (!rig_open(&rig, NULL, &err)) {
		printf("1..0 # SKIP %s\n", err.message);
		return 0;
	}
	for (int i = 0; i < 2; i++)
		rig_call(cuEventCreate, (&events[i], CU_EVENT_DEFAULT));
	printf(
	    "# %s, driver %d.%d; ours in all and on the device, read plus written; then how many times as long\n"
	    "# take one copy of as many bytes, a loop of cuMemcpyAsync, cuMemcpyBatchAsync%s%s\n",
	    rig.device.name, rig.device.driver_version / 1000, rig.device.driver_version % 1000 / 10,
	    base_batch_missing() ? ": " : "", base_batch_missing() ? base_batch_missing() : "");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct row row = rows[i];

		row.n = row.n > one_in ? row.n / one_in : 1;
		time_row(&row, runs, false);
		time_row(&row, runs, true);
	}
	desk_close(&desk);
	for (int i = 0; i < 2; i++)
		rig_call(cuEventDestroy, (events[i]));
	rig_close(&rig);
	return 0;
}
