/* SPDX-License-Identifier: Apache-2.0 */
/* Compares lists of blocks and batches, one request each, with the driver's ways to move as many bytes: one
 * copy, a loop of cuMemcpyAsync, and cuMemcpyBatchAsync.
 *
 *    bench_blocks [RUNS [ONE-IN]]    RUNS is 31, or fewer where a row takes long. ONE-IN reduces the blocks
 * for trials.
 *
 * Times are medians by the host's clock from the first call until everything has ended, so time saved on the
 * host counts. For the engine and the single copy, the device's own time when enqueued behind other work is
 * given as well. Each row except batches is measured twice: as planned, and with a kernel that takes any
 * layout. Each run uses other blocks and another destination, so that little is found in the L2, and follows
 * a finished run of the same kind, so that what a driver has to clean up after thousands of calls does not
 * count for the next way. Every block of every row is checked; a wrong byte ends the program with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench_blocks_base.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/stage/uploads.h"
#include "kernels/cuda/strategy/plan.h"
#include "tests/gpu/rig.h"
#include "tests/support/oracle.h"

#define WARM_UPS 2
#define LEAST    3 /* least runs of a row; more if they fit */
#define MOST     101
#define ROW_NS   2e9
#define SETS     4

#define BUSY_BYTES ((size_t)128 << 20)

enum what { GATHER, SCATTER, BATCH };
enum place { DEVICE, HOST };

struct row {
	enum what what;
	enum place dst, src;
	uint32_t n;
	uint32_t bytes;
	/* Permutes [16, 8, 128] to [8, 16, 128] elements of 2 bytes, repeated to fill the block. */
	bool permuted;
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

static const size_t n_rows = sizeof rows / sizeof *rows;

static uint32_t blocks_of(const struct row *row, uint32_t one_in)
{
	return row->n > one_in ? row->n / one_in : 1;
}

static struct rig rig;
static struct upload_buffer upload_buffer;
static CUevent events[2];

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

/* Memory for the largest row, with the same contents on both sides; host memory is pinned. What is read never
 * changes. */
static struct side {
	CUdeviceptr address[2]; /* by index of the place */
	char *host;
} from, to;
static CUdeviceptr busy[2]; /* source and destination of the copy that keeps the device busy */
static size_t room, busy_bytes;

static void fill(char *data, size_t size)
{
	uint64_t seed = 1;

	for (size_t at = 0; at < size; at += 8) {
		/* Most words depend only on their position, which saves the time of random ones. */
		const uint64_t word = at % 512 ? at * 0x9e3779b97f4a7c15 : oracle_random(&seed);

		memcpy(data + at, &word, 8);
	}
}

static void open_side(struct side *side)
{
	side->address[DEVICE] = rig_new(room);
	side->host =
	    mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (side->host == MAP_FAILED)
		rig_die("out of memory");
	rig_call(cuMemHostRegister, (side->host, room, CU_MEMHOSTREGISTER_DEVICEMAP));
	rig_call(cuMemHostGetDevicePointer, (&side->address[HOST], side->host, 0));
}

static void open_memory(uint32_t one_in)
{
	for (size_t i = 0; i < n_rows; i++) {
		const size_t own = (size_t)blocks_of(&rows[i], one_in) * SETS * rows[i].bytes;

		room = own > room ? own : room;
	}
	open_side(&from);
	open_side(&to);
	fill(from.host, room);
	rig_call(cuMemcpyAsync, (from.address[DEVICE], (CUdeviceptr)from.host, room, rig.stream));
	busy_bytes = BUSY_BYTES / one_in;
	for (int i = 0; i < 2; i++)
		busy[i] = rig_new(busy_bytes);
	rig_wait(&rig);
}

static void close_side(const struct side *side)
{
	rig_free(side->address[DEVICE]);
	rig_call(cuMemHostUnregister, (side->host));
	munmap(side->host, room);
}

static void close_memory(void)
{
	close_side(&from);
	close_side(&to);
	for (int i = 0; i < 2; i++)
		rig_free(busy[i]);
}

/* ---- A row ----------------------------------------------------------------------------------------- */

/* A row's blocks. Set s of the indexed side is index[s * n] to index[s * n + n - 1]; on the other side it is
 * blocks s * n to s * n + n - 1. */
struct turn {
	struct row row;
	uint64_t dst, src;
	int32_t *index;
	struct transform_spec spec;
	struct transform transform;
	struct copies copies; /* the copies of the current set */
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

static void prepare(struct turn *turn, const struct row *row)
{
	const uint32_t all = row->n * SETS;

	*turn = (struct turn){ .row = *row, .dst = to.address[row->dst], .src = from.address[row->src] };
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
	free(turn->index);
	free(turn->copies.dst);
	free(turn->copies.src);
	free(turn->copies.size);
}

/* Return the block of entry i of the set on either side. */
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
		turn->copies.dst[i] = turn->dst + (size_t)dst_block(turn, set, i) * turn->row.bytes;
		turn->copies.src[i] = turn->src + (size_t)src_block(turn, set, i) * turn->row.bytes;
		turn->copies.size[i] = turn->row.bytes;
	}
}

static void must(int r, const struct error *err)
{
	if (r < 0)
		rig_die("%s", err->message);
}

/* Plans a list as the engine does (cuda_plan.c). */
static void plan_list(struct turn *turn, const struct engine_blocks *blocks, bool plain)
{
	struct plan_facts facts = { .threads = rig.device.processors, .align = 16 };

	if (!plain) {
		facts.listed = true;
		facts.threads /= (uint32_t)blocks->n;
		plan_init(&turn->plan, &turn->transform, &facts);
		if (block_plan_has_kernel(&turn->plan, blocks))
			return;
		facts.listed = false;
		facts.threads = rig.device.processors;
	}
	facts.spread = true;
	plan_init(&turn->plan, &turn->transform, &facts);
}

static void lay_list(struct block_list *list, const int32_t *index, uint32_t n)
{
	struct error err;
	uint64_t base;
	void *laid;

	must(upload_buffer_begin(&upload_buffer, 0, &err), &err);
	laid = upload_buffer_take(&upload_buffer, n * sizeof *index);
	memcpy(laid, index, n * sizeof *index);
	must(upload_buffer_send(&upload_buffer, rig.stream, &base, &err), &err);
	list->index = upload_buffer_place(&upload_buffer, base, laid);
	list->number_bytes = sizeof *index;
}

/* Launches as the engine does: with the list in the arguments, or in the upload buffer. */
static void run_list(struct turn *turn, int set, bool plain)
{
	const struct row *row = &turn->row;
	const uint64_t other = (uint64_t)set * row->n * row->bytes;
	const bool scatter = row->what == SCATTER;
	const int32_t *index = turn->index + (size_t)set * row->n;
	struct engine_blocks blocks = { .n = row->n,
		                        .layers = 1,
		                        .scatter = scatter,
		                        .index = index,
		                        .index_bytes = 4,
		                        .limit = (uint64_t)row->n * SETS,
		                        .dst.step = row->bytes,
		                        .src.step = row->bytes };
	const uint64_t dst = turn->dst + (scatter ? 0 : other), src = turn->src + (scatter ? other : 0);
	struct block_list list = { .dst_step = row->bytes,
		                   .src_step = row->bytes,
		                   .limit = blocks.limit,
		                   .scatter = scatter,
		                   .by_n = divisor_of(row->n) };
	struct error err;

	plan_list(turn, &blocks, plain);
	list.number_bytes = enclosed_entry_bytes(&turn->plan, &blocks);
	if (!list.number_bytes)
		lay_list(&list, index, row->n);
	must(launch_blocks(&rig.launcher, rig.stream, &turn->transform, &turn->plan, dst, src, NULL, &blocks,
	                   &list, &err),
	     &err);
}

static void run_batch(struct turn *turn, int set)
{
	struct run_entry *entries;
	struct error err;
	uint64_t base, parts;

	must(upload_buffer_begin(&upload_buffer, 0, &err), &err);
	entries = upload_buffer_take(&upload_buffer, turn->row.n * sizeof *entries);
	for (uint32_t i = 0; i < turn->row.n; i++)
		entries[i] = (struct run_entry){
			.dst = turn->dst + (size_t)dst_block(turn, set, i) * turn->row.bytes,
			.src = turn->src + (size_t)src_block(turn, set, i) * turn->row.bytes,
			.bytes = turn->row.bytes,
		};
	parts = runs_lay(entries, turn->row.n);
	must(upload_buffer_send(&upload_buffer, rig.stream, &base, &err), &err);
	must(launch_runs(&rig.launcher, rig.stream, upload_buffer_place(&upload_buffer, base, entries),
	                 turn->row.n, parts, &err),
	     &err);
}

static void run_ours(struct turn *turn, int set, bool plain)
{
	if (turn->row.what == BATCH)
		run_batch(turn, set);
	else
		run_list(turn, set, plain);
}

/* ---- Checks ---------------------------------------------------------------------------------------- */

static void is_right_block(const struct turn *turn, int set, uint32_t i, bool plain)
{
	static char wanted[64 << 10];
	const size_t bytes = turn->row.bytes, tokens = bytes / 2048;
	const char *source = from.host + src_block(turn, set, i) * bytes;

	memcpy(wanted, source, bytes);
	for (size_t t = 0; turn->row.permuted && t < tokens; t++)
		for (size_t h = 0; h < 8; h++)
			memcpy(wanted + (h * tokens + t) * 256, source + (t * 8 + h) * 256, 256);
	if (memcmp(to.host + dst_block(turn, set, i) * bytes, wanted, bytes) != 0)
		rig_die("block %u of %u of %zu bytes is wrong, %s", i, turn->row.n, bytes,
		        plain ? "plain" : "planned");
}

/* Checks the result in a destination that held other bytes before. */
static void check(struct turn *turn, int set, bool plain)
{
	const size_t all = (size_t)turn->row.n * SETS * turn->row.bytes;

	if (turn->row.dst == DEVICE)
		rig_call(cuMemsetD8Async, (turn->dst, 0xa5, all, rig.stream));
	else
		memset(to.host, 0xa5, all);
	run_ours(turn, set, plain);
	if (turn->row.dst == DEVICE)
		rig_call(cuMemcpyAsync, ((CUdeviceptr)to.host, turn->dst, all, rig.stream));
	rig_wait(&rig);
	for (uint32_t i = 0; i < turn->row.n; i++)
		is_right_block(turn, set, i, plain);
}

/* ---- Times ----------------------------------------------------------------------------------------- */

enum way { PLANNED, PLAIN, COPY, LOOP, OWN_BATCH, WAYS };

/* Times by the host's clock; for the first two ways also by the device's. */
struct times {
	double ns[WAYS][MOST];
	double device[COPY + 1][MOST];
};

static bool has_way(const struct row *row, enum way way)
{
	return way == PLAIN ? row->what != BATCH : way == OWN_BATCH ? !base_batch_missing() : true;
}

static void run_way(struct turn *turn, enum way way, int set)
{
	const size_t half = (size_t)turn->row.n * turn->row.bytes;

	switch (way) {
	case PLANNED:
	case PLAIN:
		run_ours(turn, set, way == PLAIN);
		break;
	case COPY:
		rig_call(cuMemcpyAsync, (turn->dst + set * half, turn->src + set * half, half, rig.stream));
		break;
	case LOOP:
		base_loop(&turn->copies, rig.stream);
		break;
	default:
		base_batch(&turn->copies, rig.stream);
		break;
	}
}

/* Measures behind a copy that keeps the device busy while this is enqueued. */
static double device_ns(struct turn *turn, enum way way, int set)
{
	float ms;

	rig_call(cuMemcpyAsync, (busy[0], busy[1], busy_bytes, rig.stream));
	rig_call(cuEventRecord, (events[0], rig.stream));
	run_way(turn, way, set);
	rig_call(cuEventRecord, (events[1], rig.stream));
	rig_wait(&rig);
	rig_call(cuEventElapsedTime, (&ms, events[0], events[1]));
	return (double)ms * 1e6;
}

static double host_ns(struct turn *turn, enum way way, int set)
{
	const int before = (set + 1) % SETS;
	double start;

	set_copies(turn, before);
	run_way(turn, way, before);
	rig_wait(&rig);
	set_copies(turn, set);
	start = now_ns();
	run_way(turn, way, set);
	rig_wait(&rig);
	return now_ns() - start;
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

static void print(const struct row *row, struct times *times, int runs)
{
	const double bytes = 2.0 * row->n * row->bytes;
	double ns[WAYS], own[COPY + 1];

	for (int way = 0; way < WAYS; way++)
		ns[way] = median(times->ns[way], runs);
	for (int way = 0; way <= COPY; way++)
		own[way] = median(times->device[way], runs);
	for (int way = PLANNED; way <= PLAIN; way++) {
		if (!has_way(row, (enum way)way))
			continue;
		printf("%-7s %-6s %-6s %5u x %2u KiB %-9s %-7s %8.1f us %8.1f us %7.1f GB/s %6.2f %6.2f ",
		       whats[row->what], places[row->src], places[row->dst], row->n, row->bytes >> 10,
		       row->permuted ? "permuted" : "", way == PLAIN ? "plain" : "planned", ns[way] / 1e3,
		       own[way] / 1e3, bytes / own[way], ns[COPY] / ns[way], own[COPY] / own[way]);
		printf("%7.2f ", ns[LOOP] / ns[way]);
		if (base_batch_missing())
			printf("      -\n");
		else
			printf("%7.2f\n", ns[OWN_BATCH] / ns[way]);
	}
	fflush(stdout);
}

static void time_run(struct turn *turn, int run, struct times *times)
{
	for (int k = 0; k < WAYS; k++) {
		/* Each way is first, and follows each other way, equally often. */
		const int way = (run + k) % WAYS;
		const int set = (run + way) % SETS;

		if (!has_way(&turn->row, (enum way)way))
			continue;
		times->ns[way][run] = host_ns(turn, (enum way)way, set);
		if (way <= COPY)
			times->device[way][run] = device_ns(turn, (enum way)way, (set + 2) % SETS);
	}
}

static void time_row(const struct row *row, int runs)
{
	static struct times times;
	struct turn turn;
	double start;
	int run = 0;

	prepare(&turn, row);
	for (int plain = 0; plain < 2; plain++)
		check(&turn, 0, plain);
	for (int i = 0; i < WARM_UPS; i++)
		time_run(&turn, 0, &times);
	start = now_ns();
	while (run < runs && (run < LEAST || now_ns() - start < ROW_NS))
		time_run(&turn, run++, &times);
	for (int plain = 0; plain < 2; plain++)
		check(&turn, SETS - 1, plain);
	print(row, &times, run);
	dismiss(&turn);
}

int main(int argc, char **argv)
{
	const int runs = argc > 1 ? atoi(argv[1]) : 31;
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
	    "# take one copy of as many bytes in all and on the device, a loop of cuMemcpyAsync, cuMemcpyBatchAsync%s%s\n",
	    rig.device.name, rig.device.driver_version / 1000, rig.device.driver_version % 1000 / 10,
	    base_batch_missing() ? ": " : "", base_batch_missing() ? base_batch_missing() : "");
	open_memory(one_in);
	for (size_t i = 0; i < n_rows; i++) {
		struct row row = rows[i];

		row.n = blocks_of(&row, one_in);
		time_row(&row, runs);
	}
	close_memory();
	upload_buffer_close(&upload_buffer);
	for (int i = 0; i < 2; i++)
		rig_call(cuEventDestroy, (events[i]));
	rig_close(&rig);
	return 0;
}
