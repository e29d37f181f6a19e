/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how lists of blocks are divided into work items, and lists that do not just run to their end. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/run/running_job.h"
#include "kernels/cpu/run/small.h"
#include "kernels/host/memory.h"
#include "rig.h"

#define POISON 0x5a

/* Returns memory of a size whose bytes nobody accesses. */
static struct host_memory nowhere(uint64_t size)
{
	static char byte;
	return (struct host_memory){ .base = { .size = size }, .data = &byte };
}

/* ---- Work items -----------------------------------------------------------------------------------------
 */

struct cut_row {
	char name[32];
	int64_t bytes; /* bytes of a block */
	uint64_t n;
	uint32_t layers;
	bool region;
	uint64_t least; /* least number of work items */
	uint64_t most;  /* greatest number of work items; 0: it does not matter */
};

ParameterizedTestParameters(blocks, work_items_are_short)
{
	static struct cut_row rows[] = {
		{ "32 KiB", 32 << 10, 8192, 1, false, 256, 0 },
		{ "32 KiB, region", 32 << 10, 8192, 1, true, 256, 0 },
		{ "4 KiB", 4 << 10, 8192, 1, false, 64, 0 },
		{ "4 KiB, few", 4 << 10, 100, 1, false, 4, 0 },
		{ "layers", 16 << 10, 3000, 7, false, 2 * 3000 * 7 / 128, 0 },
		{ "layers, region", 16 << 10, 3000, 7, true, 2 * 3000 * 7 / 128, 0 },
		{ "one byte", 1, 5000, 1, false, 5000 / 128, 0 },
		{ "one entry", 64, 1, 1, true, 1, 0 },
		{ "one entry, many layers", 64, 1, 160, false, 4, 8 },
		{ "short list, many layers", 64, 5, 160, false, 8, 20 },
		{ "short list, region", 64, 5, 160, true, 8, 21 },
		{ "large", 8 << 20, 5, 3, false, 8 * 15, 0 },
		{ "large, region", 8 << 20, 5, 3, true, 8 * 15, 0 },
	};
	return cr_make_param_array(struct cut_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Fills the next group as a work item would that reads it from a list in a region, with entries that are all
 * 0. */
static void pretend_to_read(struct running_job *running)
{
	struct running_blocks *b = &running->blocks;
	struct engine_blocks list = *running->job->blocks;
	static int32_t zeros[8192];
	list.index = zeros;
	index_list_read(&list, b->next, &b->group[!b->current]);
}

/* Each block is handed out once in each layer, and no work item holds more than a piece. */
ParameterizedTest(struct cut_row *row, blocks, work_items_are_short)
{
	static struct running_job running;
	static struct work_item work_item;
	static struct list_work work;
	static int32_t index[8192];
	struct host_memory memory = nowhere((uint64_t)row->bytes * row->n * row->layers);
	struct cpu_tuning tuning = cpu_tuning_get();
	uint64_t blocks = 0, work_items = 0, part_bytes = 0;
	uint8_t *seen = calloc(row->n, row->layers);
	open_engine(1, 0);
	list_work_init(&work, row->bytes, row->n, row->layers, false, &memory.base, &memory.base);
	work.blocks.index = row->region ? NULL : index;
	work.blocks.index_memory = &memory.base;
	running_job_start(&running, &work.job, &tuning, 2);
	cr_assert_eq(running_job_work_items(&running, 4), row->least < 4 ? 2 : 4, "%s: %u", row->name,
	             running_job_work_items(&running, 4));
	while (running_job_work_items(&running, 1)) {
		running_job_work_item(&running, &work_item);
		switch (work_item.kind) {
		case WORK_ITEM_READ:
			cr_assert(row->region, "%s", row->name);
			pretend_to_read(&running);
			break;
		case WORK_ITEM_BLOCKS:
			cr_assert_leq((int64_t)work_item.n * work_item.layers * row->bytes, tuning.piece_most,
			              "%s: work item %lu holds %u of %u layers", row->name,
			              (unsigned long)work_items, work_item.n, work_item.layers);
			for (uint32_t l = work_item.layer; l < work_item.layer + work_item.layers; l++)
				for (uint32_t i = 0; i < work_item.n; i++)
					cr_assert_eq(seen[l * row->n + (uint64_t)work_item.entry[i].dst]++, 0,
					             "%s", row->name);
			blocks += (uint64_t)work_item.n * work_item.layers;
			break;
		default:
			cr_assert_eq(work_item.kind, WORK_ITEM_PARTITION, "%s", row->name);
			part_bytes +=
			    (uint64_t)work_item.partition.move.dim[0].chunk * work_item.partition.move.unit;
			cr_assert_leq(work_item.partition.move.dim[0].chunk * work_item.partition.move.unit,
			              tuning.piece_most);
		}
		running_job_end_work_item(&running, &work_item, 0);
		work_items++;
	}
	struct engine_job *ended;
	cr_assert(running_job_end(&running, &ended));
	cr_assert_eq(ended->status, 0);
	cr_assert_geq(work_items, row->least, "%s: %lu work items", row->name, (unsigned long)work_items);
	if (row->most)
		cr_assert_leq(work_items, row->most, "%s: %lu work items", row->name,
		              (unsigned long)work_items);
	if (part_bytes)
		cr_assert_geq(part_bytes, (uint64_t)row->bytes * row->n * row->layers, "%s", row->name);
	else
		cr_assert_eq(blocks, row->n * row->layers, "%s", row->name);
	free(seen);
	close_engine();
}

/* A list that names no block ends once it has been read, however many layers it has. If such a list is short,
 * it is run where it is submitted and not by a thread. */
Test(blocks, that_names_nothing)
{
	enum { N = 3 * INDEX_LIST_GROUP };
	static struct running_job running;
	static struct list_work work;
	static int32_t index[N];
	struct host_memory memory = nowhere(64 << 20);
	struct cpu_tuning tuning = cpu_tuning_get();
	struct engine_job *ended;
	memset(index, 0xff, sizeof index);
	open_engine(1, 0);
	list_work_init(&work, 4096, N, 160, false, &memory.base, &memory.base);
	work.blocks.index = index;
	running_job_clear(&work.job);
	running_job_start(&running, &work.job, &tuning, 2);
	cr_assert_eq(running_job_work_items(&running, 8), 0);
	cr_assert(running_job_end(&running, &ended));
	cr_assert_eq(work.blocks.passed, N);
	cr_assert_not(small_is(&work.job, &tuning), "the list is long");
	work.blocks.n = 64;
	cr_assert(small_is(&work.job, &tuning));
	index[63] = 0;
	cr_assert_not(small_is(&work.job, &tuning), "a block in each of 160 layers");
	close_engine();
}

/* There is no other work while a work item reads the first group of the list. The next group is read before
 * all of the first one has been handed out. */
Test(blocks, reads_ahead)
{
	static struct running_job running;
	static struct work_item read, work_item;
	static struct list_work work;
	struct host_memory memory = nowhere(64 << 20);
	struct cpu_tuning tuning = cpu_tuning_get();
	open_engine(1, 0);
	list_work_init(&work, 4096, 3 * INDEX_LIST_GROUP, 1, false, &memory.base, &memory.base);
	work.blocks.index_memory = &memory.base;
	running_job_start(&running, &work.job, &tuning, 2);
	cr_assert_eq(running_job_work_items(&running, 8), 8, "there is more to come than a look");
	running_job_work_item(&running, &read);
	cr_assert_eq(read.kind, WORK_ITEM_READ);
	cr_assert_eq(running_job_work_items(&running, 8), 0);
	pretend_to_read(&running);
	running_job_end_work_item(&running, &read, 0);
	running_job_work_item(&running, &read);
	cr_assert_eq(read.kind, WORK_ITEM_READ);
	running_job_work_item(&running, &work_item);
	cr_assert_eq(work_item.kind, WORK_ITEM_BLOCKS);
	running_job_end_work_item(&running, &work_item, 0);

	/* The list's memory fails. Work items under way may still end, and there are no more. */
	running_job_work_item(&running, &work_item);
	running_job_end_work_item(&running, &read, STATUS_DEVICE);
	cr_assert_eq(running_job_work_items(&running, 8), 0);
	struct engine_job *ended;
	cr_assert_not(running_job_end(&running, &ended));
	running_job_end_work_item(&running, &work_item, 0);
	cr_assert(running_job_end(&running, &ended));
	cr_assert_eq(ended->status, STATUS_DEVICE);
	close_engine();
}

/* ---- The end ---------------------------------------------------------------------------------------- */

/* The list is cancelled after two work items have been made, one of which has not been executed. */
Test(blocks, cancel_in_the_middle)
{
	enum { BYTES = 1024, N = 512 };
	static struct running_job running;
	static struct work_item first, second;
	static struct list_work work;
	static int32_t index[N];
	struct cpu_scratch *scratch = cpu_scratch_new();
	open_engine(1, 0);
	struct cpu_tuning tuning = cpu_tuning_get();
	struct engine_memory *dst = new_memory(BYTES * N), *src = new_memory(BYTES * N);
	memset(data(dst), POISON, BYTES * N);
	memset(data(src), 1, BYTES * N);
	for (int i = 0; i < N; i++)
		index[i] = N - 1 - i;
	list_work_init(&work, BYTES, N, 1, false, dst, src);
	work.blocks.index = index;
	running_job_start(&running, &work.job, &tuning, 1);
	running_job_work_item(&running, &first);
	running_job_work_item(&running, &second);
	cr_assert_eq(work_item_execute(&first, scratch), 0);
	running_job_end_work_item(&running, &first, 0);
	running_job_stop(&running, STATUS_CANCELED);
	cr_assert_eq(running_job_work_items(&running, 1), 0);
	int status = work_item_execute(&second, scratch);
	cr_assert_eq(status, STATUS_CANCELED);
	running_job_end_work_item(&running, &second, status);
	struct engine_job *ended;
	cr_assert(running_job_end(&running, &ended));
	cr_assert_eq(ended->status, STATUS_CANCELED);
	for (uint32_t i = 0; i < BYTES * N; i++)
		cr_assert_eq(data(dst)[i], i < first.n * BYTES ? 1 : POISON, "byte %u", i);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
	cpu_scratch_free(scratch);
}

enum which { INDEX, SOURCE, DESTINATION };

/* ---- A list that changes ---------------------------------------------------------------------------- */

/* Starts a client's process, which changes the list until it is killed. */
static pid_t change(volatile int32_t *index, uint32_t n)
{
	static const int32_t values[] = { 1, -1, 0x7fffffff, 2, -2, 0 };
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		for (uint32_t i = 0;; i++)
			index[i % n] = values[i / 7 % 6];
	return pid;
}

/* Whatever value an entry had when it was read holds for all layers and for the counts. */
Test(blocks, a_list_that_changes)
{
	enum { BYTES = 64, N = 1500, LAYERS = 3, LIMIT = 3, ROUNDS = 60 };
	static struct list_work work;
	open_engine(2, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(BYTES * N * LAYERS), *src = new_memory(BYTES * LIMIT * LAYERS);
	struct engine_memory *list = new_memory(N * 4);
	for (int i = 0; i < LIMIT * LAYERS; i++)
		memset(data(src) + i * BYTES, 1 + i % LIMIT, BYTES);
	pid_t pid = change((volatile int32_t *)(void *)data(list), N);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t moved = 0;
		memset(data(dst), POISON, BYTES * N * LAYERS);
		list_work_init(&work, BYTES, N, LAYERS, false, dst, src);
		work.blocks.index_memory = list;
		cr_assert_eq(work.blocks.limit, LIMIT);
		n_done = 0;
		engine_submit(engine, stream, &work.job);
		wait_done(1);
		cr_assert_eq(work.job.status, 0);
		for (int i = 0; i < N; i++) {
			char first = data(dst)[i * BYTES];
			moved += first != POISON;
			for (int layer = 0; layer < LAYERS; layer++)
				for (int byte = 0; byte < BYTES; byte++)
					cr_assert_eq(data(dst)[(layer * N + i) * BYTES + byte], first,
					             "round %d, entry %d, layer %d", round, i, layer);
		}
		cr_assert_eq(moved + work.blocks.passed + work.blocks.beyond, N);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, list);
	close_engine();
}

/* ---- Fairness --------------------------------------------------------------------------------------- */

/* With a single thread, a small job that is submitted after a long list on another stream comes back first,
 * wherever the list lies. */
static void share(bool region)
{
	enum { BYTES = 4096, N = 20000 };
	static struct work held, small;
	static struct list_work large;
	static int32_t index[N];
	n_done = 0;
	open_engine(1, 0);
	struct engine_stream *a = engine_stream_new(engine, &owner), *b = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * BYTES), *src = new_memory(BYTES),
			     *list = new_memory(N * 4);
	struct engine_memory *other = new_memory(64 * 64 * 4);
	work_init(&small, 64, false, other, dst);
	hold_thread(&held, a, other, dst);
	list_work_init(&large, BYTES, N, 1, false, dst, src);
	large.blocks.index = region ? NULL : index;
	large.blocks.index_memory = list;
	engine_submit(engine, a, &large.job);
	engine_submit(engine, b, &small.job);
	atomic_store(&hold, false);
	wait_done(2);
	cr_assert_eq(done[0], &small.job);
	cr_assert_eq(large.job.status, 0);
	engine_stream_free(engine, a);
	engine_stream_free(engine, b);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, list);
	engine_unmap(engine, other);
	close_engine();
}

Test(blocks, streams_share)
{
	share(false);
	share(true);
}
