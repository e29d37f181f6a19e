/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the engine on the device with the oracles for random lists of blocks, batches, and transforms
 * between split tensors. Whole memories are compared.
 *
 *    lists [CASES [SEED]]    Output is TAP. Each case is decided by its seed alone.
 *
 * Half of the cases may use only one multiprocessor of the device.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cuda/memory/memory.h"
#include "rig.h"
#include "tests/support/blocks.h"
#include "tests/support/plans.h"
#include "tests/support/split_case.h"

#define DEFAULT_CASES 1500
#define MOST_MOVES    48
#define PROBES        5000 /* probes, one a millisecond */
#define SIDES         2    /* device and host */

static struct engine *engine;
static struct engine_owner owner;
static struct engine_stream *stream;
static struct engine_memory *dst[SIDES], *src[SIDES], *indices[SIDES];
static unsigned char *had, *has, *source;
static int wakeups;
static bool is_done;

/* ---- The engine
 * ------------------------------------------------------------------------------------------ */

static void wake(void *arg)
{
	const uint64_t one = 1;

	(void)arg;
	if (write(wakeups, &one, sizeof one) != sizeof one)
		rig_die("the eventfd is full");
}

static void on_done(struct engine_job *job)
{
	(void)job;
	is_done = true;
}

static void run(struct engine_job *job)
{
	struct pollfd fd = { .fd = wakeups, .events = POLLIN };
	uint64_t count;

	is_done = false;
	engine_submit(engine, stream, job);
	while (!is_done) {
		if (poll(&fd, 1, 60000) != 1)
			rig_die("a job did not come back");
		if (read(wakeups, &count, sizeof count) != sizeof count)
			rig_die("the eventfd cannot be read");
		engine_reap(engine);
	}
}

static struct engine_memory *new_memory(int side, uint64_t size)
{
	struct engine_memory *memory;
	struct engine_export export;
	struct error err;

	if (engine_create(engine, side ? REGION_KIND_MEMFD : REGION_KIND_CUDA_FD, size, &memory, &export,
	                  &err) < 0)
		rig_die("%s", err.message);
	if (export.fd >= 0)
		close(export.fd);
	return memory;
}

static void put(struct engine_memory *memory, const void *from, size_t size)
{
	rig_call(cuMemcpyAsync, (cuda_memory(memory)->address, (CUdeviceptr)from, size, NULL));
	rig_call(cuStreamSynchronize, (NULL));
}

static void get(void *to, struct engine_memory *memory, size_t size)
{
	rig_call(cuMemcpyAsync, ((CUdeviceptr)to, cuda_memory(memory)->address, size, NULL));
	rig_call(cuStreamSynchronize, (NULL));
}

static void open_all(void)
{
	uint64_t state = 5;

	engine_owner_init(&owner);
	stream = engine_stream_new(engine, &owner);
	had = malloc(BLOCKS_CASE_BYTES);
	has = malloc(BLOCKS_CASE_BYTES);
	source = malloc(BLOCKS_CASE_BYTES);
	if (!stream || !had || !has || !source)
		rig_die("out of memory");
	for (size_t i = 0; i < BLOCKS_CASE_BYTES / 8; i++)
		((uint64_t *)source)[i] = oracle_random(&state);
	for (int i = 0; i < SIDES; i++) {
		dst[i] = new_memory(i, BLOCKS_CASE_BYTES);
		src[i] = new_memory(i, BLOCKS_CASE_BYTES);
		indices[i] = new_memory(i, 4096);
		put(src[i], source, BLOCKS_CASE_BYTES);
	}
	memset(had, 0xa5, BLOCKS_CASE_BYTES);
}

static void close_all(void)
{
	for (int i = 0; i < SIDES; i++) {
		engine_unmap(engine, dst[i]);
		engine_unmap(engine, src[i]);
		engine_unmap(engine, indices[i]);
	}
	engine_stream_free(engine, stream);
	plans_drop();
	engine_close(engine);
	free(had);
	free(has);
	free(source);
}

/* ---- Cases
 * ----------------------------------------------------------------------------------------------- */

struct work {
	struct transform transform;
};

static struct engine_move move_of(struct work *work, const struct transform_spec *spec,
                                  struct engine_memory *to, uint64_t to_offset, struct engine_memory *from,
                                  uint64_t from_offset)
{
	struct error err;

	if (transform_init(&work->transform, spec, &err) < 0)
		rig_die("%s", err.message);
	return (struct engine_move){ .transform = &work->transform,
		                     .plan = plan_for(engine, &work->transform, to->base + to_offset,
		                                      from->base + from_offset),
		                     .dst = to,
		                     .src = from,
		                     .dst_offset = to_offset,
		                     .src_offset = from_offset };
}

static bool complain(uint64_t seed, const char *what, const struct oracle_case *c)
{
	char text[1024] = "";

	if (c)
		oracle_case_text(c, text, sizeof text);
	printf("# seed %" PRIu64 ": %s %s\n", seed, what, text);
	return false;
}

static bool try_list(uint64_t seed)
{
	static struct blocks_case c;
	static struct work work;
	struct engine_blocks *b = &c.blocks;
	const int to = seed / 2 % 2, from = seed / 4 % 2;
	const bool in_region = seed / 8 % 2;
	struct engine_job job = { .blocks = b, .share.multiprocessors = seed / 32 % 2, .on_done = on_done };

	blocks_case_draw(seed, &c, !in_region);
	job.move = move_of(&work, &c.block.spec, dst[to], c.dst.offset, src[from], c.src.offset);
	b->index = c.packed + 1;
	if (in_region) {
		b->index = NULL;
		b->index_memory = indices[seed / 16 % 2];
		put(b->index_memory, c.packed + 1, b->n * blocks_entry_bytes(b));
	}
	put(dst[to], had, c.dst.end);
	run(&job);
	get(has, dst[to], c.dst.end);
	blocks_case_expect(&c, had, source);
	const bool same = memcmp(had, has, c.dst.end) == 0;
	memset(had, 0xa5, c.dst.end);
	if (job.status)
		return complain(seed, "did not end well", &c.block);
	if (!same)
		return complain(seed, "wrong bytes", &c.block);
	if (work.transform.count > 0 && (b->passed != c.passed || b->beyond != c.beyond))
		return complain(seed, "wrong counts", &c.block);
	return true;
}

static bool try_batch(uint64_t seed)
{
	static struct work work[MOST_MOVES];
	static struct engine_move moves[MOST_MOVES];
	struct engine_job job = { .moves = moves,
		                  .share.multiprocessors = seed / 32 % 2,
		                  .on_done = on_done };
	uint64_t state = seed, end[SIDES] = { 0 };
	static unsigned char *expected[SIDES];
	bool good = true;

	job.n_moves = 1 + (uint32_t)(oracle_random(&state) % MOST_MOVES);
	for (int m = 0; m < SIDES; m++) {
		if (!expected[m] && !(expected[m] = malloc(BLOCKS_CASE_BYTES)))
			rig_die("out of memory");
		memcpy(expected[m], had, BLOCKS_CASE_BYTES);
		put(dst[m], had, BLOCKS_CASE_BYTES);
	}
	for (uint32_t i = 0; i < job.n_moves; i++) {
		const int m = (int)(oracle_random(&state) % SIDES);
		struct oracle_case c;

		oracle_random_case(seed * 1000 + i, &c);
		const uint64_t to = end[m] + ORACLE_GUARD + c.dst_offset;
		const uint64_t from = oracle_random(&state) % 512 + c.src_offset;

		moves[i] = move_of(&work[i], &c.spec, dst[m], to, src[oracle_random(&state) % SIDES], from);
		oracle_run(&c.spec, expected[m] + to, source + from);
		end[m] += (c.dst_size + 2 * ORACLE_GUARD) / 16 * 16 + oracle_random(&state) % 2 * 8;
		oracle_case_free(&c);
	}
	run(&job);
	for (int m = 0; m < SIDES; m++) {
		get(has, dst[m], BLOCKS_CASE_BYTES);
		good = good && memcmp(has, expected[m], BLOCKS_CASE_BYTES) == 0;
	}
	for (uint32_t i = 0; i < job.n_moves; i++)
		good = good && moves[i].status == 0;
	return good || complain(seed, "a batch went wrong", NULL);
}

/* Runs the parts of one transform as a batch. */
static bool try_split(uint64_t seed)
{
	static struct work work[SPLIT_MAX_PARTS];
	static struct engine_move moves[SPLIT_MAX_PARTS];
	struct engine_job job = { .moves = moves,
		                  .share.multiprocessors = seed / 32 % 2,
		                  .on_done = on_done };
	uint64_t state = seed;
	const int to = (int)(oracle_random(&state) % SIDES), from = (int)(oracle_random(&state) % SIDES);
	unsigned char *expected = malloc(BLOCKS_CASE_BYTES);
	struct split_part part;
	struct split_case c;
	struct split split;
	struct error err;
	bool good;

	if (!expected)
		rig_die("out of memory");
	do
		split_random_case(oracle_random(&state), &c);
	while (c.c.dst_size + ORACLE_GUARD > BLOCKS_CASE_BYTES || c.c.src_size > BLOCKS_CASE_BYTES);
	if (split_init(&split, &c.c.spec, &c.dst, &c.src, &err) < 0)
		rig_die("%s", err.message);
	memcpy(expected, had, BLOCKS_CASE_BYTES);
	put(dst[to], had, BLOCKS_CASE_BYTES);
	split_oracle_run(&c.c.spec, &c.dst, &c.src, expected + ORACLE_GUARD + c.c.dst_offset,
	                 source + c.c.src_offset);
	job.n_moves = (uint32_t)split.n_parts;
	for (int i = 0; i < split.n_parts; i++) {
		split_get(&split, i, &part);
		moves[i] = move_of(&work[i], &part.spec, dst[to],
		                   ORACLE_GUARD + c.c.dst_offset + (uint64_t)part.dst_offset, src[from],
		                   c.c.src_offset + (uint64_t)part.src_offset);
	}
	run(&job);
	get(has, dst[to], BLOCKS_CASE_BYTES);
	good = job.status == 0 && memcmp(has, expected, BLOCKS_CASE_BYTES) == 0;
	free(expected);
	return good || complain(seed, "a split transform went wrong", &c.c);
}

static bool answers(void)
{
	struct error err;

	for (int i = 0; i < PROBES; i++) {
		if (engine_probe(engine, &err) == 0)
			return true;
		usleep(1000);
	}
	printf("# %s\n", err.message);
	return false;
}

/* Replaces the occupancy query, as in transforms.c: with so few blocks, each block of a bounded kernel has
 * several tiles. */
static CUresult CUDAAPI one_block(int *ret, CUfunction function, int threads, size_t shared)
{
	(void)function, (void)threads, (void)shared;
	*ret = 1;
	return CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
	const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : DEFAULT_CASES;
	const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	const struct engine_options options = { .tensor_maps = 16, .wake = wake };
	uint64_t failed = 0, silent = 0;
	struct error err;

	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine_cuda_open(&engine, &options, &err) < 0) {
		printf("1..0 # SKIP %s\n", err.message);
		return 0;
	}
	driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = one_block;
	open_all();
	for (uint64_t i = seed; i < seed + cases && failed < 20; i++) {
		silent += !answers();
		failed += i % 16 == 0 ? !try_batch(i) : i % 4 == 2 ? !try_split(i) : !try_list(i);
	}
	silent += !answers();
	close_all();
	printf("1..2\n%s - %" PRIu64 " lists, batches and splits from seed %" PRIu64 ", %" PRIu64 " wrong\n",
	       failed ? "not ok" : "ok", cases, seed, failed);
	printf("%s - the engine gives signs of life between them, %" PRIu64 " missing\n",
	       silent ? "not ok" : "ok", silent);
	return failed || silent;
}
