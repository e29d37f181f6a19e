/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks that move between a device and pinned memory through scratch memory, which is so
 * small that its slots are used again and again. */
#include "kernels/cuda/stage/offload.h"

#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "tests/support/oracle.h"

#define MOST_LAYERS 4
#define MOST_BLOCKS 60

static struct device device;
static struct map_cache maps;
static struct uploads uploads;
static struct offloads offloads;
static struct engine *guest;

static void open_all(void)
{
	struct error err;

	rig_open();
	cr_assert_eq(engine_cuda_of_stream(&guest, stream, &err), 0);
	cr_assert_eq(device_adopt(&device, context, &err), 0);
	cr_assert_eq(map_cache_init(&maps, 16, 1, &err), 0);
	cr_assert_eq(uploads_init(&uploads, device.handle, &err), 0);
	offloads_init(&offloads, &uploads);
	offloads.fetch_ns =
	    UINT64_C(60000000000); /* A machine under load takes longer than half a millisecond. */
}

static void close_all(void)
{
	offloads_deinit(&offloads);
	uploads_deinit(&uploads);
	map_cache_deinit(&maps);
	device_close(&device);
	cuda(cuCtxSetCurrent(context));
	rig_close();
}

TestSuite(offload, .init = open_all, .fini = close_all, .timeout = 300);

/* A list between a pool on the device and a buffer on the host, whose blocks follow each other or are evenly
 * spaced. */
struct list {
	bool out, is_turned; /* is_turned: each block is transposed on its way */
	bool pairs;          /* the list has pairs, which name the host's blocks from the last to the first */
	bool is_kept;        /* the entries lie in device memory */
	uint32_t rows, columns, n, layers, in_pool, index_bytes;
	size_t block, host_step, pool_step, pool_layer, all;
	CUdeviceptr pool, kept, counts; /* `counts` is a struct engine_counts in device memory */
	unsigned char *host, *was;      /* previous content of the side that is written */
	int64_t entry[MOST_BLOCKS], layer_at[MOST_LAYERS];
	int64_t both[2 * MOST_BLOCKS];
	int32_t narrow[2 * MOST_BLOCKS];
};

static void draw_list(uint64_t *state, struct list *list)
{
	*list = (struct list){ .out = oracle_between(state, 0, 1),
		               .is_turned = oracle_between(state, 0, 3) == 0,
		               .pairs = oracle_between(state, 0, 2) == 0,
		               .rows = (uint32_t)oracle_between(state, 1, 24),
		               .columns = (uint32_t)oracle_between(state, 1, 80),
		               .n = (uint32_t)oracle_between(state, 1, MOST_BLOCKS),
		               .layers = (uint32_t)oracle_between(state, 1, MOST_LAYERS),
		               .index_bytes = oracle_between(state, 0, 1) ? 4 : 8 };
	list->is_kept = !list->pairs && oracle_between(state, 0, 1);
	list->block = (size_t)list->rows * list->columns * 4;
	list->host_step = list->block + (oracle_between(state, 0, 1) ? list->block / 8 * 4 : 0);
	list->in_pool = list->n + (uint32_t)oracle_between(state, 0, 9);
	list->pool_step = list->block + 4 * (size_t)oracle_between(state, 0, 2);
	list->pool_layer = list->in_pool * list->pool_step + 64;
	list->all = list->layers * list->n * list->host_step;
	/* The entries are the first of a permutation of the pool's blocks. */
	for (uint32_t i = 0; i < list->n; i++)
		list->entry[i] = (i * 7 + 3) % list->in_pool;
	for (uint32_t i = 0; i < list->n; i++) {
		for (uint32_t k = 0; k < i; k++)
			if (list->entry[k] == list->entry[i])
				list->entry[i] = -1;
		if (oracle_between(state, 0, list->is_kept && list->out ? 99 : 9) == 0)
			list->entry[i] = -1;
		list->both[i] = list->entry[i];
	}
	for (uint32_t i = 0; list->pairs && i < list->n; i++) {
		list->both[2 * i] = list->out ? list->entry[i] : list->n - 1 - i;
		list->both[2 * i + 1] = list->out ? list->n - 1 - i : list->entry[i];
	}
	for (uint32_t i = 0; i < 2 * list->n; i++)
		list->narrow[i] = (int32_t)list->both[i];
	for (uint32_t l = 0; l < list->layers; l++)
		list->layer_at[l] = (int64_t)((list->layers - 1 - l) * list->pool_layer);
}

static unsigned char byte_at(size_t i)
{
	return (unsigned char)(i * 131 + i / 251);
}

static void fill_list(struct list *list)
{
	const size_t size = list->layers * list->pool_layer;
	unsigned char *bytes = malloc(size + list->all);

	cr_assert_not_null(bytes);
	cuda(cuMemAlloc(&list->pool, size));
	cuda(cuMemHostAlloc((void **)&list->host, list->all, 0));
	for (size_t i = 0; i < size; i++)
		bytes[i] = byte_at(i);
	rig_put(list->pool, bytes, size);
	for (size_t i = 0; i < list->all; i++)
		list->host[i] = byte_at(i + 77);
	list->was = bytes;
	if (list->out)
		memcpy(list->was, list->host, list->all);
	if (!list->is_kept)
		return;
	cuda(cuMemAlloc(&list->kept, sizeof list->both));
	if (list->index_bytes == 8)
		rig_put(list->kept, list->both, sizeof list->both);
	else
		rig_put(list->kept, list->narrow, sizeof list->narrow);
	list->counts = rig_bytes(sizeof(struct engine_counts), 0);
}

static uint64_t count_passed(const struct list *list)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < list->n; i++)
		n += list->entry[i] < 0;
	return n;
}

/* Returns whether the device has counted each entry that names no block once. */
static bool is_counted(const struct list *list)
{
	struct engine_counts counts;

	if (!list->is_kept)
		return true;
	rig_get(&counts, list->counts, sizeof counts);
	return counts.passed == count_passed(list) && counts.beyond == 0;
}

static void free_list(struct list *list)
{
	free(list->was);
	cuda(cuMemFree(list->pool));
	if (!list->is_kept)
		return;
	cuda(cuMemFree(list->kept));
	cuda(cuMemFree(list->counts));
}

/* Returns where block i of a layer begins on the host. pool_place does the same for the pool. */
static size_t host_place(const struct list *list, uint32_t l, uint32_t i)
{
	return (l * list->n + (list->pairs ? list->n - 1 - i : i)) * list->host_step;
}

static size_t pool_place(const struct list *list, uint32_t l, uint32_t i)
{
	return (size_t)list->layer_at[l] + (size_t)list->entry[i] * list->pool_step;
}

/* Returns the index in the source block of the element that becomes element k of the destination's. */
static size_t source_element(const struct list *list, size_t k)
{
	return list->is_turned ? k % list->rows * list->columns + k / list->rows : k;
}

static bool is_moved(const struct list *list, const unsigned char *pool)
{
	const unsigned char *from = list->out ? pool : list->host, *to = list->out ? list->host : pool;
	unsigned char *want = list->was;

	for (uint32_t l = 0; l < list->layers; l++)
		for (uint32_t i = 0; i < list->n; i++)
			for (size_t k = 0; list->entry[i] >= 0 && k < list->block / 4; k++) {
				const size_t h = host_place(list, l, i), p = pool_place(list, l, i);

				memcpy(want + (list->out ? h : p) + 4 * k,
				       from + (list->out ? p : h) + 4 * source_element(list, k), 4);
			}
	return memcmp(to, want, list->out ? list->all : list->layers * list->pool_layer) == 0;
}

static struct engine_plan *plan_of(const struct list *list)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t from[2] = { list->rows, list->columns }, to[2] = { list->columns, list->rows };
	struct engine_plan *plan;
	struct error err;

	if (list->is_turned) {
		spec.n_perm = 2;
		spec.perm[0] = 1;
	}
	cr_assert_eq(tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, from, NULL, "src", &err), 0);
	cr_assert_eq(
	    tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, list->is_turned ? to : from, NULL, "dst", &err),
	    0);
	cr_assert_eq(engine_prepare(guest, &spec, plan_places(0, 0), &plan, &err), 0, "%s", err.message);
	return plan;
}

/* Moves the list. Returns whether it went through scratch memory. host_layers has the offsets of the host's
 * layers; NULL: the layers follow each other. */
static bool move_list_at(const struct list *list, const int64_t *host_layers, CUstream to)
{
	const struct engine_blocks_side pool = { .step = list->pool_step, .layers = list->layer_at }, host = {
		.step = list->host_step, .layer_step = list->n * list->host_step, .layers = host_layers
	};
	struct engine_plan *plan = plan_of(list);
	struct engine_blocks blocks = { .index = list->is_kept            ? NULL
		                                 : list->index_bytes == 8 ? (const void *)list->both
		                                                          : (const void *)list->narrow,
		                        .index_memory = guest->own,
		                        .index_offset = list->kept,
		                        .index_bytes = list->index_bytes,
		                        .n = list->n,
		                        .limit = list->pairs && !list->out ? list->n : list->in_pool,
		                        .dst_limit = list->out ? list->n : list->in_pool,
		                        .pairs = list->pairs,
		                        .layers = list->layers,
		                        .scatter = !list->out && !list->pairs,
		                        .dst = list->out ? host : pool,
		                        .src = list->out ? pool : host };
	struct engine_job job = { .move = { .transform = engine_plan_transform(plan),
		                            .plan = plan,
		                            .dst = guest->own,
		                            .src = guest->own },
		                  .blocks = &blocks };
	struct launcher launcher = { .device = &device, .maps = &maps };
	struct error err;
	bool is_done;

	job.move.dst_offset = list->out ? (uintptr_t)list->host : list->pool;
	job.move.src_offset = list->out ? list->pool : (uintptr_t)list->host;
	cr_assert_eq(offload_launch(&offloads, &launcher, &job, list->out, !list->out, to, list->counts,
	                            &is_done, &err),
	             0, "%s", err.message);
	engine_plan_unref(plan);
	cr_assert(is_done || (blocks.passed == 0 && blocks.beyond == 0),
	          "whoever moves the list counts its entries");
	return is_done;
}

static bool move_list(const struct list *list, CUstream to)
{
	return move_list_at(list, NULL, to);
}

static void draw_limits(uint64_t *state)
{
	offloads.limits = (struct packing_limits){
		.run_bytes = UINT64_MAX,
		.piece_bytes = UINT64_C(1) << oracle_between(state, 4, 14),
		.slot_bytes = (uint64_t)oracle_between(state, 1, 5000),
		.stretch_bytes = UINT64_C(1) << oracle_between(state, 6, 12),
		.scratch_bytes = UINT64_C(16384) << oracle_between(state, 0, 4),
		.slots = (uint32_t)oracle_between(state, 1, 2),
		.is_busy = true,
	};
}

Test(offload, random_lists)
{
	const uint64_t cases = 250;
	uint64_t state = 45, done = 0, kept[2] = { 0 };

	for (uint64_t i = 0; i < cases; i++) {
		struct list list;
		unsigned char *pool;
		bool is_done;

		draw_limits(&state);
		draw_list(&state, &list);
		fill_list(&list);
		is_done = move_list(&list, stream);
		pool = malloc(list.layers * list.pool_layer);
		rig_get(pool, list.pool, list.layers * list.pool_layer);
		cr_assert(!is_done || (is_moved(&list, pool) && is_counted(&list)), "list %llu",
		          (unsigned long long)i);
		done += is_done;
		kept[list.out] += is_done && list.is_kept;
		free(pool);
		cuda(cuMemFreeHost(list.host));
		free_list(&list);
	}
	cr_assert_gt(done, cases / 2, "%llu of %llu lists", (unsigned long long)done,
	             (unsigned long long)cases);
	cr_assert(kept[0] > cases / 10 && kept[1] > cases / 20,
	          "lists in memory of the device: %llu in, %llu out", (unsigned long long)kept[0],
	          (unsigned long long)kept[1]);
}

static const struct packing_limits small_limits = { .run_bytes = UINT64_MAX,
	                                            .piece_bytes = 1024,
	                                            .slot_bytes = 4096,
	                                            .stretch_bytes = 4096,
	                                            .scratch_bytes = 65536,
	                                            .slots = 2,
	                                            .is_busy = true };

/* The order of the stream holds on both sides: a gather moves what was written before it, and later work
 * reads what has arrived. A stream that is held up does not make another one wait. */
Test(offload, order_is_that_of_the_stream)
{
	CUdeviceptr word = rig_bytes(8, 0), copy;
	struct list held, other;
	uint64_t state = 7;
	unsigned char *pool;
	CUstream second;

	offloads.limits = small_limits;
	do
		draw_list(&state, &held);
	while (!held.out || held.pairs || held.is_kept || held.all < 65536);
	do
		draw_list(&state, &other);
	while (other.out || other.pairs || other.is_kept || other.all < 65536);
	fill_list(&held);
	fill_list(&other);
	cuda(cuMemAlloc(&copy, held.all));
	cuda(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, 0));
	cuda(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	cr_assert(move_list(&held, stream));
	cuda(cuMemcpyHtoDAsync(copy, held.host, held.all, stream));
	cr_assert(move_list(&other, second));
	cuda(cuStreamSynchronize(second));
	pool = malloc(other.layers * other.pool_layer);
	cuda(cuMemcpyDtoHAsync(pool, other.pool, other.layers * other.pool_layer, second));
	cuda(cuStreamSynchronize(second));
	cr_assert(is_moved(&other, pool));
	cr_assert_eq(memcmp(held.host, held.was, held.all), 0);
	cuda(cuStreamWriteValue64(second, word, 1, 0));
	pool = realloc(pool, held.layers * held.pool_layer);
	rig_get(pool, held.pool, held.layers * held.pool_layer);
	cr_assert(is_moved(&held, pool));
	rig_get(held.was, copy, held.all);
	cr_assert_eq(memcmp(held.was, held.host, held.all), 0);
	free(pool);
	free(held.was);
	free(other.was);
	cuda(cuStreamDestroy(second));
}

/* Returns a list of this many layers, with blocks that all have one size. */
static struct list plain_list(bool out, uint32_t layers)
{
	struct list list = { .out = out,
		             .rows = 16,
		             .columns = 16,
		             .n = 16,
		             .layers = layers,
		             .in_pool = 16,
		             .index_bytes = 4,
		             .block = 1024,
		             .host_step = 1024,
		             .pool_step = 1024,
		             .pool_layer = 16 * 1024 };

	list.all = layers * list.n * list.block;
	for (int i = 0; i < 16; i++)
		list.entry[i] = list.narrow[i] = (i * 7 + 3) % 16;
	for (uint32_t l = 0; l < layers; l++)
		list.layer_at[l] = (int64_t)(l * list.pool_layer);
	return list;
}

static void check_and_free(struct list *list)
{
	unsigned char *pool = malloc(list->layers * list->pool_layer);

	cr_assert_not_null(pool);
	rig_get(pool, list->pool, list->layers * list->pool_layer);
	cr_assert(is_moved(list, pool));
	free(pool);
	free_list(list);
}

/* Returns a list with its entries in device memory, of which entry 3 is given and may name no block. */
static struct list kept_list(bool out, int64_t entry)
{
	struct list list = plain_list(out, 2);

	list.is_kept = true;
	list.entry[3] = list.narrow[3] = (int32_t)entry;
	fill_list(&list);
	return list;
}

/* The copy engine would also write the block of an entry that is to be skipped, so such a list does not go
 * through scratch memory. */
Test(offload, a_list_of_the_device_whose_entries_have_to_be_known)
{
	offloads.limits = small_limits;
	for (int i = 0; i < 3; i++) {
		struct list list = kept_list(true, (const int64_t[]){ -1, 16, INT32_MIN }[i]);

		cr_assert_not(move_list(&list, stream));
		cr_assert_eq(memcmp(list.host, list.was, list.all), 0);
		cuda(cuMemFreeHost(list.host));
		free_list(&list);
	}
}

/* Earlier work in the stream may still write the list. Only a move to the device can do without reading it
 * first. */
Test(offload, a_list_of_the_device_that_is_not_there_yet)
{
	offloads.limits = small_limits;
	for (int out = 0; out < 2; out++) {
		struct list list = kept_list(out, 8);
		CUdeviceptr word = rig_bytes(8, 0), early;
		CUstream other;

		cuda(cuMemAlloc(&early, sizeof list.narrow));
		rig_put(early, list.narrow, sizeof list.narrow);
		rig_put(list.kept, (const int32_t[2 * MOST_BLOCKS]){ 0 }, sizeof list.narrow);
		cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
		cuda(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
		cuda(cuMemcpyDtoDAsync(list.kept, early, sizeof list.narrow, stream));
		cr_assert_eq(move_list(&list, stream), !out);
		cuda(cuStreamWriteValue64(other, word, 1, 0));
		cuda(cuStreamSynchronize(stream));
		if (!out)
			check_and_free(&list);
		else
			free_list(&list);
		cuda(cuMemFree(early));
		cuda(cuStreamDestroy(other));
	}
}

/* Copies take some time on the stand-in device, so that a kernel behind one does not start at once. */
static void open_slow(void)
{
	setenv("SOFTGPU_COPY_US", "50000", 1);
	open_all();
}

/* Copies of other streams may be queued before that of the list, even such as wait for the calling thread. */
Test(offload, a_list_of_the_device_that_does_not_come, .init = open_slow)
{
	struct list list = kept_list(true, 8);
	int tries = 20; /* This thread may be kept from running for as long as a copy takes. */

	offloads.limits = small_limits;
	offloads.fetch_ns = 1;
	while (tries > 0 && move_list(&list, stream)) {
		cuda(cuStreamSynchronize(stream));
		tries--;
	}
	cr_assert_gt(tries, 0, "the call waits for the list");
	offloads.fetch_ns = UINT64_C(60000000000);
	cr_assert(move_list(&list, stream));
	check_and_free(&list);
}

/* A list that is written anew after the check does not change what is gathered. */
Test(offload, a_list_of_the_device_that_changes_after_the_check, .init = open_slow)
{
	struct list list = kept_list(true, 8);
	CUstream other;

	offloads.limits = small_limits;
	cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	cr_assert(move_list(&list, stream));
	cuda(cuStreamWriteValue64(other, list.kept, UINT64_MAX, 0));
	check_and_free(&list);
	cuda(cuStreamDestroy(other));
}

/* No copy crosses the end of an allocation, although the next layer may begin there. */
Test(offload, layers_in_adjacent_allocations)
{
	const size_t layer = 16 * 1024;
	const int64_t places[2] = { 0, (int64_t)layer };

	offloads.limits = small_limits;
	for (int out = 0; out < 2; out++) {
		struct list list = plain_list(out, 2);
		unsigned char *pages = aligned_alloc(4096, 2 * layer), *own;

		cr_assert_not_null(pages);
		fill_list(&list);
		own = list.host;
		memcpy(pages, own, 2 * layer);
		cuda(cuMemHostRegister(pages, layer, 0));
		cuda(cuMemHostRegister(pages + layer, layer, 0));
		list.host = pages;
		cr_assert(move_list_at(&list, places, stream));
		check_and_free(&list);
		cuda(cuMemHostUnregister(pages));
		cuda(cuMemHostUnregister(pages + layer));
		cuda(cuMemFreeHost(own));
		free(pages);
	}
}

/* Memory that is pinned only in part is left to the kernel; checking it is up to the caller. */
Test(offload, memory_that_is_pinned_in_part)
{
	struct list list = plain_list(true, 2);
	unsigned char *pages = aligned_alloc(4096, list.all), *own;

	offloads.limits = small_limits;
	fill_list(&list);
	own = list.host;
	cuda(cuMemHostRegister(pages, list.all / 2, 0));
	list.host = pages;
	cr_assert_not(move_list(&list, stream));
	cuda(cuMemHostUnregister(pages));
	cuda(cuMemFreeHost(own));
	cuda(cuMemFree(list.pool));
	free(list.was);
	free(pages);
}

/* Short pieces with holes between them do not go through scratch memory, and nothing is counted. */
Test(offload, a_list_that_goes_another_way)
{
	struct list list = plain_list(true, 1);

	offloads.limits = small_limits;
	offloads.limits.piece_bytes = 64 << 10;
	fill_list(&list);
	for (int i = 0; i < 16; i += 2)
		list.entry[i] = list.narrow[i] = -1;
	cr_assert_not(move_list(&list, stream));
	cuda(cuMemFreeHost(list.host));
	cuda(cuMemFree(list.pool));
	free(list.was);
}

Test(offload, no_memory_for_scratch)
{
	struct list list = plain_list(true, 2);
	size_t size = (size_t)1 << 40;
	CUdeviceptr taken[64];
	int n = 0;

	offloads.limits = small_limits;
	fill_list(&list);
	for (; size >= 4096 && n < 64; size /= 2)
		while (n < 64 && cuMemAlloc(&taken[n], size) == CUDA_SUCCESS)
			n++;
	cr_assert_not(move_list(&list, stream));
	while (n > 0)
		cuda(cuMemFree(taken[--n]));
	cr_assert(move_list(&list, stream));
	check_and_free(&list);
	cuda(cuMemFreeHost(list.host));
}

/* Streams that are held up do not make another one wait, however many there are. */
Test(offload, streams_that_are_all_busy)
{
	enum { STREAMS = 9 };
	CUdeviceptr word = rig_bytes(8, 0);
	struct list list[STREAMS];
	CUstream held[STREAMS];
	int done = 0;

	offloads.limits = small_limits;
	for (int i = 0; i < STREAMS; i++) {
		list[i] = plain_list(i % 2, 2);
		fill_list(&list[i]);
		cuda(cuStreamCreateWithPriority(&held[i], CU_STREAM_NON_BLOCKING, 0));
		cuda(cuStreamWaitValue64(held[i], word, 1, CU_STREAM_WAIT_VALUE_GEQ));
		done += move_list(&list[i], held[i]);
	}
	cr_assert_eq(done, STREAMS - 1);
	cuda(cuStreamWriteValue64(stream, word, 1, 0));
	for (int i = 0; i < STREAMS; i++) {
		cuda(cuStreamSynchronize(held[i]));
		cuda(cuStreamDestroy(held[i]));
		if (i < STREAMS - 1)
			check_and_free(&list[i]);
		cuda(cuMemFreeHost(list[i].host));
	}
	cuda(cuMemFree(list[STREAMS - 1].pool));
	free(list[STREAMS - 1].was);
}

/* The public call moves a long list between pinned memory and a device, directly and in a graph. */
Test(offload, gathers_and_scatters)
{
	const size_t block = 32 << 10, n = 160, in_pool = 200;
	int32_t index[160];
	CUdeviceptr pool = rig_numbers(in_pool * block / 4);
	uint32_t *host;

	cuda(cuMemHostAlloc((void **)&host, n * block, 0));
	for (size_t i = 0; i < n; i++)
		index[i] = (int32_t)(i * 7 % in_pool);
	const int64_t size = (int64_t)block / 4;
	struct tma_tensor to = { .offset = (uintptr_t)host,
		                 .dtype = TMA_UINT32,
		                 .rank = 1,
		                 .shape = { size } },
			  from = { .offset = pool, .dtype = TMA_UINT32, .rank = 1, .shape = { size } };
	const struct tma_transform out = { .dst = &to, .src = &from }, in = { .dst = &from, .src = &to };
	struct tma_blocks blocks = {
		.transform = &out, .count = n, .index_dtype = TMA_INT32, .index = index, .limit = in_pool
	};

	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	cuda(cuStreamSynchronize(stream));
	for (size_t i = 0; i < n * block / 4; i++) {
		const size_t at = (size_t)index[i / (block / 4)] * (block / 4) + i % (block / 4);

		cr_assert_eq(host[i], (uint32_t)at * 2654435761u, "%zu", i);
		host[i] = ~host[i];
	}
	blocks.transform = &in;
	cr_assert_eq(tma_enqueue_scatter(client, &blocks, stream), 0, "%s", tma_last_error(client));
	rig_get(host, pool, n * block);
	for (size_t i = 0; i < n; i++)
		if (index[i] < (int32_t)n)
			cr_assert_eq(host[(size_t)index[i] * (block / 4)],
			             ~((uint32_t)((size_t)index[i] * (block / 4)) * 2654435761u), "%zu", i);
	cuda(cuMemFreeHost(host));
}
