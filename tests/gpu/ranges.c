/* SPDX-License-Identifier: Apache-2.0 */
/* Tests address ranges of many allocations on a GPU, with a tmad on the same device: chunks of 2 MiB and of
 * 20 MiB, as PyTorch's expandable segments have them; allocations of a memory pool (cudaMallocAsync); and
 * memory of the service that is mapped here. Output is TAP, with the times of registrations and searches as
 * diagnostics.
 *
 *    ranges SOCKET [MIB]        MIB is the size of a range (1024).
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/tmaclient.h"
#include "rig.h"

#define MIB     (UINT64_C(1) << 20)
#define GROWTH  (64 * MIB)
#define COLUMNS 4096
#define FINDS   1000000

struct span {
	CUdeviceptr start;
	uint64_t chunk;
	size_t n; /* chunks mapped, from start on */
	size_t room;
};

static struct device device;
static tma_client *client;
static int cases, failures;

#define must(call)                                                        \
	do {                                                              \
		if ((call) < 0)                                           \
			rig_die("%s: %s", #call, tma_last_error(client)); \
	} while (0)

static void say(bool ok, const char *what, uint64_t chunk)
{
	failures += !ok;
	printf("%s %d - %s, chunks of %" PRIu64 " MiB\n", ok ? "ok" : "not ok", ++cases, what, chunk / MIB);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- Ranges ------------------------------------------------------------------------------------------ */

static void map_chunk(CUdeviceptr at, uint64_t size)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.handle }
	};
	const CUmemAccessDesc access = { .location = properties.location,
		                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle allocation;

	rig_call(cuMemCreate, (&allocation, size, &properties, 0));
	rig_call(cuMemMap, (at, size, 0, allocation, 0));
	rig_call(cuMemSetAccess, (at, size, &access, 1));
	rig_call(cuMemRelease, (allocation));
}

static void span_grow(struct span *span, size_t n)
{
	for (; n > 0; n--)
		map_chunk(span->start + span->n++ * span->chunk, span->chunk);
}

static struct span span_new(uint64_t chunk, size_t n, size_t room)
{
	struct span span = { .chunk = chunk, .room = room };

	rig_call(cuMemAddressReserve, (&span.start, room * chunk, 0, 0, 0));
	span_grow(&span, n);
	return span;
}

static void span_free(struct span *span)
{
	for (size_t i = 0; i < span->n; i++)
		rig_call(cuMemUnmap, (span->start + i * span->chunk, span->chunk));
	rig_call(cuMemAddressFree, (span->start, span->room * span->chunk));
}

static void *at(CUdeviceptr address)
{
	return (void *)(uintptr_t)address;
}

/* Registers the range and sets *ret_us to the time that it took. */
static tma_region *registered(const struct span *span, double *ret_us)
{
	tma_region *region = NULL;
	const double start = now_us();

	must(tma_region_from_device_ptr(client, at(span->start), span->n * span->chunk, 0, &region));
	*ret_us = now_us() - start;
	return region;
}

/* ---- Moves ------------------------------------------------------------------------------------------- */

static uint32_t word_at(uint64_t i, uint32_t seed)
{
	return (uint32_t)(i * 2654435761u) + seed;
}

/* Transposes all of the range, as rows of COLUMNS words, into another range. Returns whether the result is
 * right. */
static bool transposes(const struct span *span, tma_region *region, uint32_t seed)
{
	const uint64_t words = span->n * span->chunk / sizeof(uint32_t);
	const int64_t rows = (int64_t)(words / COLUMNS);
	struct span out = span_new(span->chunk, span->n, span->n);
	double ignored;
	tma_region *dst = registered(&out, &ignored);
	const struct tma_tensor s = {
		.region = region, .dtype = TMA_UINT32, .rank = 2, .shape = { rows, COLUMNS }
	};
	const struct tma_tensor d = {
		.region = dst, .dtype = TMA_UINT32, .rank = 2, .shape = { COLUMNS, rows }
	};
	uint32_t *data = malloc(words * sizeof *data);
	bool same = true;

	if (!data)
		rig_die("out of memory");
	for (uint64_t i = 0; i < words; i++)
		data[i] = word_at(i, seed);
	rig_call(cuMemcpyHtoDAsync, (span->start, data, words * sizeof *data, NULL));
	rig_call(cuStreamSynchronize, (NULL));
	must(tma_transpose(client, &d, &s, (int[]){ 1, 0 }));
	rig_call(cuMemcpyDtoHAsync, (data, out.start, words * sizeof *data, NULL));
	rig_call(cuStreamSynchronize, (NULL));
	for (int64_t c = 0; c < COLUMNS && same; c++)
		for (int64_t r = 0; r < rows && same; r++)
			same = data[c * rows + r] == word_at((uint64_t)(r * COLUMNS + c), seed);
	free(data);
	must(tma_region_release(dst));
	span_free(&out);
	return same;
}

/* Returns the time of a search at a varying address of the range. */
static double find_ns(const struct span *span, bool *ret_right)
{
	const uint64_t bytes = span->n * span->chunk;
	struct tma_place place = { 0 };
	const double start = now_us();
	uint64_t offset = 0;

	for (int i = 0; i < FINDS; i++) {
		offset = (offset + 12345677) % (bytes - 64);
		if (tma_region_find(client, at(span->start + offset), 64, &place) < 0 ||
		    place.offset != offset)
			*ret_right = false;
	}
	return (now_us() - start) * 1e3 / FINDS;
}

static uint64_t id_of(CUdeviceptr address)
{
	unsigned long long id = 0;

	rig_call(cuPointerGetAttribute, (&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
	return id;
}

/* Frees one chunk and maps another one at its address. */
static void reuse(const struct span *span, tma_region *region)
{
	const CUdeviceptr chunk = span->start + span->n / 2 * span->chunk;
	const uint64_t before = id_of(chunk);
	tma_region *again;
	double us;

	rig_call(cuMemUnmap, (chunk, span->chunk));
	map_chunk(chunk, span->chunk);
	printf("# the driver's id of the chunk: %" PRIu64 " before, %" PRIu64 " after, %" PRIu64
	       " of the next\n",
	       before, id_of(chunk), id_of(chunk + span->chunk));
	again = registered(span, &us);
	say(again != region, "a reused address is noticed", span->chunk);
	printf("# registered again with one new chunk: %.0f us\n", us);
	say(transposes(span, again, 3), "what lies there now is moved", span->chunk);
	must(tma_region_release(again));
}

static void run(uint64_t chunk, uint64_t bytes)
{
	const size_t n = (bytes + chunk - 1) / chunk, more = (GROWTH + chunk - 1) / chunk;
	struct span span = span_new(chunk, n, n + more);
	double first, second, grown_us;
	tma_region *region = registered(&span, &first), *again = registered(&span, &second), *grown;
	bool right = true;
	double ns;

	say(again == region, "the second registration is the first", chunk);
	must(tma_region_release(again));
	ns = find_ns(&span, &right);
	say(right, "places are found", chunk);
	say(transposes(&span, region, 1), "all of the range is transposed", chunk);
	span_grow(&span, more);
	grown = registered(&span, &grown_us);
	printf(
	    "# %zu chunks: registered in %.0f us, again in %.1f us, with %zu more in %.0f us; found in %.0f ns\n",
	    n, first, second, more, grown_us, ns);
	say(transposes(&span, grown, 2), "so is what has grown", chunk);
	must(tma_region_release(region));
	reuse(&span, grown);
	must(tma_region_release(grown));
	span_free(&span);
}

/* ---- Pools ------------------------------------------------------------------------------------------- */

/* Looks up entry points that the engine does not use. */
#define ENTRY(name) __typeof__(&name) name##_entry = dlsym(driver.library, #name)

static CUmemoryPool new_pool(void)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		                            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                          .id = device.handle } };
	ENTRY(cuMemPoolCreate);
	CUmemoryPool pool;

	if (!cuMemPoolCreate_entry || cuMemPoolCreate_entry(&pool, &properties) != CUDA_SUCCESS)
		rig_die("cuMemPoolCreate");
	return pool;
}

/* Returns an allocation as a span of one chunk. */
static struct span allocate(CUmemoryPool pool, uint64_t bytes)
{
	struct span span = { .chunk = bytes, .n = 1, .room = 1 };
	ENTRY(cuMemAllocFromPoolAsync);

	if (!cuMemAllocFromPoolAsync_entry ||
	    cuMemAllocFromPoolAsync_entry(&span.start, bytes, pool, NULL) != CUDA_SUCCESS)
		rig_die("cuMemAllocFromPoolAsync");
	rig_call(cuStreamSynchronize, (NULL));
	return span;
}

static void free_now(const struct span *span)
{
	rig_call(cuMemFreeAsync, (span->start, NULL));
	rig_call(cuStreamSynchronize, (NULL));
}

static void run_pool(uint64_t bytes)
{
	CUmemoryPool pool = new_pool();
	struct span first = allocate(pool, bytes), second = allocate(pool, bytes), third;
	double first_us, again_us, second_us;
	tma_region *region = registered(&first, &first_us), *again = registered(&first, &again_us),
		   *part = NULL;
	tma_region *other = registered(&second, &second_us);

	printf("# of a pool: registered in %.0f us, the next one in %.0f us, again in %.1f us\n", first_us,
	       second_us, again_us);
	say(tma_region_kind(region) == TMA_REGION_CUDA_POOL && again == region, "memory of a pool", bytes);
	must(tma_region_release(again));
	say(transposes(&first, region, 1) && transposes(&second, other, 2), "it is transposed", bytes);
	must(tma_region_from_device_ptr(client, at(first.start + 256), bytes - 256, 0, &part));
	must(tma_region_release(region));
	must(tma_region_release(part));
	region = registered(&first, &first_us);
	say(transposes(&first, region, 3), "so it is when it was released and registered again", bytes);
	must(tma_region_release(region));
	free_now(&first);
	third = allocate(pool, bytes);
	region = registered(&third, &first_us);
	say(transposes(&third, region, 4) && transposes(&second, other, 5),
	    third.start == first.start ? "and what lies at its address later" : "and what comes later",
	    bytes);
	must(tma_region_release(region));
	must(tma_region_release(other));
	free_now(&second);
	free_now(&third);
	rig_call(cuMemPoolDestroy, (pool));
}

/* ---- Memory of the service --------------------------------------------------------------------------- */

static void run_mapped(enum tma_region_kind kind, const char *what, uint64_t bytes)
{
	struct tma_mapping mapping;
	tma_region *region;
	struct span span = { .chunk = bytes, .n = 1, .room = 1 };
	double start, us;

	must(tma_region_create_kind(client, kind, bytes, &region));
	start = now_us();
	must(tma_region_map(region, &mapping));
	us = now_us() - start;
	span.start = (uintptr_t)mapping.address;
	say(mapping.device == device.handle && transposes(&span, region, 6), what, bytes);
	must(tma_region_release(region));
	printf("# mapped in %.0f us\n", us);
}

static int64_t stat_of(const char *name)
{
	tma_document *stats;
	int64_t value;

	must(tma_stats(client, &stats));
	value = tma_document_int(tma_document_find(stats, name));
	tma_document_free(stats);
	return value;
}

int main(int argc, char **argv)
{
	const uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1024) * MIB;
	struct error err;

	if (argc < 2)
		rig_die("usage: ranges SOCKET [MIB]");
	if (device_open(&device, NULL, &err) < 0) {
		printf("1..0 # SKIP %s\n", err.message);
		return 0;
	}
	client = tma_new();
	if (!client || tma_connect(client, argv[1]) < 0)
		rig_die("%s", client ? tma_last_error(client) : "out of memory");
	const int64_t regions = stat_of("regions"), mapped = stat_of("mapped_bytes");

	run(2 * MIB, bytes);
	run(20 * MIB, bytes);
	run_pool(bytes / 16 < 32 * MIB ? 32 * MIB : bytes / 16 / (2 * MIB) * (2 * MIB));
	run_mapped(TMA_REGION_CUDA_FD, "memory of the service, by its descriptor", 32 * MIB);
	run_mapped(TMA_REGION_CUDA_IPC, "memory of the service, by its handle", 32 * MIB);
	say(stat_of("regions") == regions && stat_of("mapped_bytes") == mapped && stat_of("pending_fds") == 0,
	    "nothing is left", 0);
	tma_free(client);
	device_close(&device);
	printf("1..%d\n", cases);
	return failures > 0;
}
