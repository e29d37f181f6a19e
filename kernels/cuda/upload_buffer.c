/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an upload buffer, pinned pages and device memory of the same size, and copies from one to the other.
 */
#include "upload_buffer.h"

#include <string.h>
#include <sys/mman.h>

/* Both ends begin with the counters. */
#define COUNTER_BYTES (2 * sizeof(uint64_t))
#define FIRST         64

static int open_upload_buffer(struct upload_buffer *upload_buffer, struct error *err)
{
	CUdeviceptr device = 0;
	void *pages = mmap(NULL, UPLOAD_BUFFER_BYTES, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int r;

	if (pages == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = driver_call(err, cuMemHostRegister, (pages, UPLOAD_BUFFER_BYTES, 0));
	if (r < 0) {
		munmap(pages, UPLOAD_BUFFER_BYTES);
		return r;
	}
	r = driver_call(err, cuMemAlloc, (&device, UPLOAD_BUFFER_BYTES));
	if (r == 0)
		r = driver_call(err, cuMemsetD8Async, (device, 0, COUNTER_BYTES, NULL));
	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (NULL));
	*upload_buffer = (struct upload_buffer){ .host = pages, .device = device };
	if (r < 0)
		upload_buffer_close(upload_buffer);
	return r;
}

int upload_buffer_begin(struct upload_buffer *upload_buffer, struct error *err)
{
	int r = upload_buffer->host ? 0 : open_upload_buffer(upload_buffer, err);

	upload_buffer->used = upload_buffer->first = FIRST;
	return r;
}

void upload_buffer_close(struct upload_buffer *upload_buffer)
{
	if (upload_buffer->device)
		driver.cuMemFree(upload_buffer->device);
	if (upload_buffer->host) {
		driver.cuMemHostUnregister(upload_buffer->host);
		munmap(upload_buffer->host, UPLOAD_BUFFER_BYTES);
	}
	*upload_buffer = (struct upload_buffer){ 0 };
}

void *upload_buffer_take(struct upload_buffer *upload_buffer, size_t bytes)
{
	void *p = upload_buffer->host + upload_buffer->used;

	if (bytes > UPLOAD_BUFFER_BYTES - upload_buffer->used)
		return NULL;
	upload_buffer->used = upload_buffer->used + ((bytes + 15) & ~(size_t)15);
	if (upload_buffer->used > UPLOAD_BUFFER_BYTES)
		upload_buffer->used = UPLOAD_BUFFER_BYTES;
	return p;
}

uint64_t upload_buffer_take_device(struct upload_buffer *upload_buffer, size_t bytes)
{
	const void *p = upload_buffer_take(upload_buffer, bytes);

	upload_buffer->first = upload_buffer->used;
	return p ? upload_buffer_place(upload_buffer, upload_buffer->device, p) : 0;
}

int upload_buffer_send(struct upload_buffer *upload_buffer, CUstream stream, uint64_t *ret, struct error *err)
{
	const size_t first = upload_buffer->first, bytes = upload_buffer->used - first;

	/* However little it is: entries that kernels read over the bus take 0.1 us each, one after the other.
	 */
	*ret = upload_buffer->device;
	if (bytes == 0)
		return 0;
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (upload_buffer->device + first, upload_buffer->host + first, bytes, stream));
}

int upload_buffer_fetch_counters(struct upload_buffer *upload_buffer, CUstream stream, struct error *err)
{
	return driver_call(err, cuMemcpyDtoHAsync,
	                   (upload_buffer->host, upload_buffer->device, COUNTER_BYTES, stream));
}

void upload_buffer_count(struct upload_buffer *upload_buffer, uint64_t ret[2])
{
	uint64_t now[2];

	memcpy(now, upload_buffer->host, sizeof now);
	for (int i = 0; i < 2; i++) {
		ret[i] = now[i] - upload_buffer->counted[i];
		upload_buffer->counted[i] = now[i];
	}
}
