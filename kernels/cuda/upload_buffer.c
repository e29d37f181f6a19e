/* Pinned pages and device memory, side by side. */
#include "upload_buffer.h"

#include <string.h>
#include <sys/mman.h>

/* Both ends begin with the counters. */
#define COUNTER_BYTES (2 * sizeof(uint64_t))
#define FIRST         64

static int open_desk(struct desk *desk, struct error *err)
{
	CUdeviceptr device = 0;
	void *pages =
	    mmap(NULL, DESK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int r;

	if (pages == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = driver_call(err, cuMemHostRegister, (pages, DESK_BYTES, 0));
	if (r < 0) {
		munmap(pages, DESK_BYTES);
		return r;
	}
	r = driver_call(err, cuMemAlloc, (&device, DESK_BYTES));
	if (r == 0)
		r = driver_call(err, cuMemsetD8Async, (device, 0, COUNTER_BYTES, NULL));
	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (NULL));
	*desk = (struct desk){ .host = pages, .device = device };
	if (r < 0)
		desk_close(desk);
	return r;
}

int desk_begin(struct desk *desk, struct error *err)
{
	int r = desk->host ? 0 : open_desk(desk, err);

	desk->used = FIRST;
	return r;
}

void desk_close(struct desk *desk)
{
	if (desk->device)
		driver.cuMemFree(desk->device);
	if (desk->host) {
		driver.cuMemHostUnregister(desk->host);
		munmap(desk->host, DESK_BYTES);
	}
	*desk = (struct desk){ 0 };
}

void *desk_take(struct desk *desk, size_t bytes)
{
	void *p = desk->host + desk->used;

	if (bytes > DESK_BYTES - desk->used)
		return NULL;
	desk->used = desk->used + ((bytes + 15) & ~(size_t)15);
	if (desk->used > DESK_BYTES)
		desk->used = DESK_BYTES;
	return p;
}

int desk_send(struct desk *desk, CUstream stream, uint64_t *ret, struct error *err)
{
	const size_t bytes = desk->used - FIRST;

	/* However little it is: entries that kernels read over the bus take 0.1 us each, one after the other.
	 */
	*ret = desk->device;
	if (bytes == 0)
		return 0;
	return driver_call(err, cuMemcpyHtoDAsync, (desk->device + FIRST, desk->host + FIRST, bytes, stream));
}

int desk_fetch_counters(struct desk *desk, CUstream stream, struct error *err)
{
	return driver_call(err, cuMemcpyDtoHAsync, (desk->host, desk->device, COUNTER_BYTES, stream));
}

void desk_count(struct desk *desk, uint64_t ret[2])
{
	uint64_t now[2];

	memcpy(now, desk->host, sizeof now);
	for (int i = 0; i < 2; i++) {
		ret[i] = now[i] - desk->counted[i];
		desk->counted[i] = now[i];
	}
}
