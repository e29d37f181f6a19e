/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a service on the stand-in driver, and makes ranges of this process's allocations on the same
 * driver. */
#include "ranges.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COLUMNS 4096

struct process service;
static char live_path[64];
tma_client *client;

/* ---- What there is ---------------------------------------------------------------------------------- */

/* Counts the open descriptors of the process. */
int count_fds(pid_t pid)
{
	char path[64];
	DIR *directory;
	int n = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	directory = opendir(path);
	cr_assert(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

static int64_t stat_of(const char *name)
{
	tma_document *stats;
	int64_t value;

	ok(tma_stats(client, &stats));
	value = tma_document_int(tma_document_find(stats, name));
	tma_document_free(stats);
	return value;
}

void assert_counted(const char *name, int64_t value, const char *what)
{
	if (!rig_is_local())
		cr_assert_eq(stat_of(name), value, "%s: %s", what, name);
}

static const char *const charges[CHARGES] = { "regions", "mapped_bytes", "pending_fds", "outgoing_fds" };

/* Waits until the service has only the descriptors that it keeps. It closes those that it received or sent on
 * a separate thread and removes their charges afterwards. Its answer to this client also shows that it has
 * noticed the end of the connection that process_start made to see that it is ready. */
static void settle(void)
{
	for (int i = 0; i < 1000; i++) {
		if (stat_of("connections") == 1 && stat_of("pending_fds") == 0 &&
		    stat_of("outgoing_fds") == 0)
			return;
		usleep(10000);
	}
	cr_assert_fail("the service still holds %d connections and %d + %d descriptors of messages",
	               (int)stat_of("connections"), (int)stat_of("pending_fds"),
	               (int)stat_of("outgoing_fds"));
}

struct held held_now(void)
{
	struct held held = { 0 };

	if (!rig_is_local())
		settle();
	held.ours = count_fds(getpid());
	if (rig_is_local())
		return held;
	held.theirs = count_fds(service.pid);
	for (int i = 0; i < CHARGES; i++)
		held.charges[i] = stat_of(charges[i]);
	return held;
}

/* The service may release resources shortly after the reply to the request that ended their use. */
void assert_held(const struct held *before, const char *name)
{
	struct held now = { 0 };

	for (int i = 0; i < 500; i++) {
		now = held_now();
		if (memcmp(&now, before, sizeof now) == 0)
			return;
		usleep(10000);
	}
	cr_assert_eq(now.ours, before->ours, "%s: descriptors here", name);
	cr_assert_eq(now.theirs, before->theirs, "%s: descriptors there", name);
	for (int i = 0; i < CHARGES; i++)
		cr_assert_eq(now.charges[i], before->charges[i], "%s: %s", name, charges[i]);
}

/* Opens the engine of the current context. It stays open and has descriptors of its own. */
static void open_engine(void)
{
	struct span span = span_new(2 * MIB, 1, 1);
	tma_region *region = registered(span.start, 2 * MIB);

	ok(copy_bytes(region, 0, region, MIB, 1));
	ok(tma_region_release(region));
	span_free(&span);
}

void ranges_start(const char *argument)
{
	struct rlimit limit;
	CUcontext context;
	CUdevice device;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	setenv("SOFTGPU_MEMORY", "4294967296", 1);
	setenv("SOFTGPU_POISON", "4096", 1);
	snprintf(live_path, sizeof live_path, "/tmp/tmad-test-live-%d", (int)getpid());
	if (!rig_is_local())
		setenv("SOFTGPU_LIVE", live_path, 1);
	service.engine = "cuda";
	client = rig_start(&service, argument);
	unsetenv("SOFTGPU_LIVE");
	cuda(cuInit(0));
	cuda(cuDeviceGet(&device, 0));
	cuda(cuDevicePrimaryCtxRetain(&context, device));
	cuda(cuCtxSetCurrent(context));
	if (rig_is_local())
		open_engine();
}

void ranges_restart(const char *argument)
{
	setenv("SOFTGPU_LIVE", live_path, 1);
	process_start_again(&service, argument);
	unsetenv("SOFTGPU_LIVE");
}

/* When the service ends, its driver reports the objects that are still alive. */
void ranges_stop(void)
{
	char text[256] = "";
	FILE *file;

	rig_stop(&service, client);
	if (rig_is_local())
		return;
	file = fopen(live_path, "re");
	cr_assert(file, "%s", live_path);
	cr_assert_eq(fread(text, 1, sizeof text - 1, file), 0, "the service's driver still has %s", text);
	fclose(file);
	unlink(live_path);
}

/* ---- Ranges of this process -------------------------------------------------------------------------- */

CUmemGenericAllocationHandle new_allocation(uint64_t size, CUmemAllocationHandleType type)
{
	CUmemAllocationProp properties = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                           .requestedHandleTypes = type,
		                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle allocation;

	cuda(cuMemCreate(&allocation, size, &properties, 0));
	return allocation;
}

void map_at(CUdeviceptr at, uint64_t size, CUmemAllocationHandleType type)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle allocation = new_allocation(size, type);

	cuda(cuMemMap(at, size, 0, allocation, 0));
	cuda(cuMemSetAccess(at, size, &access, 1));
	cuda(cuMemRelease(allocation));
}

void span_grow(struct span *span, size_t n)
{
	cr_assert_leq(span->n + n, span->room);
	for (; n > 0; n--)
		map_at(span->start + span->n++ * span->chunk, span->chunk,
		       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

struct span span_new(uint64_t chunk, size_t n, size_t room)
{
	struct span span = { .chunk = chunk, .room = room };

	cuda(cuMemAddressReserve(&span.start, room * chunk, 0, 0, 0));
	span_grow(&span, n);
	return span;
}

/* Frees one chunk and maps a new one, as an allocator that returns memory does. */
void span_remap(const struct span *span, size_t i)
{
	cuda(cuMemUnmap(span->start + i * span->chunk, span->chunk));
	map_at(span->start + i * span->chunk, span->chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

void span_free(struct span *span)
{
	for (size_t i = 0; i < span->n; i++)
		cuda(cuMemUnmap(span->start + i * span->chunk, span->chunk));
	cuda(cuMemAddressFree(span->start, span->room * span->chunk));
}

uint64_t span_bytes(const struct span *span)
{
	return span->n * span->chunk;
}

void *pointer_at(CUdeviceptr address)
{
	return (void *)(uintptr_t)address;
}

tma_region *registered(CUdeviceptr start, uint64_t size)
{
	tma_region *region = NULL;

	ok(tma_region_from_device_ptr(client, pointer_at(start), size, 0, &region));
	return region;
}

/* ---- Moves ------------------------------------------------------------------------------------------ */

static uint8_t byte_at(uint64_t i, unsigned seed)
{
	return (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* The bytes are COLUMNS at the end of each chunk but the last, half of them in the next chunk. */
void assert_transposes(const struct span *span, tma_region *region, unsigned seed, const char *name)
{
	const int64_t rows = (int64_t)span->n - 1;
	const uint64_t bytes = (uint64_t)rows * COLUMNS;
	struct span out = span_new(2 * MIB, (bytes + 2 * MIB - 1) / (2 * MIB), 2 + bytes / (2 * MIB));
	tma_region *dst = registered(out.start, bytes);
	const int64_t strides[] = { (int64_t)span->chunk, 1 };
	const struct tma_tensor s = { .region = region,
		                      .offset = span->chunk - COLUMNS / 2,
		                      .dtype = TMA_UINT8,
		                      .rank = 2,
		                      .shape = { rows, COLUMNS },
		                      .strides = strides };
	const struct tma_tensor d = {
		.region = dst, .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, rows }
	};
	uint8_t *data = malloc(bytes);

	cr_assert(data);
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < COLUMNS; c++)
			data[c] = byte_at((uint64_t)(r * COLUMNS + c), seed);
		cuda(cuMemcpyHtoDAsync(span->start + (uint64_t)(r + 1) * span->chunk - COLUMNS / 2, data,
		                       COLUMNS, NULL));
		cuda(cuStreamSynchronize(NULL));
	}
	ok(tma_transpose(client, &d, &s, (int[]){ 1, 0 }));
	cuda(cuMemcpyDtoHAsync(data, out.start, bytes, NULL));
	cuda(cuStreamSynchronize(NULL));
	for (int64_t c = 0; c < COLUMNS; c++)
		for (int64_t r = 0; r < rows; r++)
			cr_assert_eq(data[c * rows + r], byte_at((uint64_t)(r * COLUMNS + c), seed),
			             "%s: row %" PRId64 ", column %" PRId64, name, r, c);
	free(data);
	ok(tma_region_release(dst));
	span_free(&out);
}

int copy_bytes(tma_region *dst, uint64_t dst_offset, tma_region *src, uint64_t src_offset, int64_t bytes)
{
	const struct tma_tensor s = {
		.region = src, .offset = src_offset, .dtype = TMA_UINT8, .rank = 1, .shape = { bytes }
	};
	const struct tma_tensor d = {
		.region = dst, .offset = dst_offset, .dtype = TMA_UINT8, .rank = 1, .shape = { bytes }
	};

	return tma_copy(client, &d, &s);
}
