/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an upload buffer, pinned pages and device memory of the same size, and copies from one to the other.
 */
#include "upload_buffer.h"

#include <string.h>
#include <sys/mman.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/strategy/tuning.h"

/* Both ends begin with the counters. */
#define COUNTER_BYTES (2 * sizeof(uint64_t))
#define FIRST         64

static_assert(AMAX_MAGNITUDES * sizeof(uint32_t) <= UPLOAD_BUFFER_BYTES / 2, "lists fit beside them");

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
	*upload_buffer =
	    (struct upload_buffer){ .host = pages, .size = UPLOAD_BUFFER_BYTES, .device = device };
	if (r < 0)
		upload_buffer_close(upload_buffer);
	return r;
}

static int borrow(struct upload_buffer *upload_buffer, size_t size, struct error *err)
{
	struct upload *upload;
	int r = upload_take(upload_buffer->uploads, upload_buffer->stream, size, &upload, err);

	if (r < 0)
		return r;
	upload_buffer->upload = upload;
	upload_buffer->host = upload->host;
	upload_buffer->size = size;
	upload_buffer->device = upload->device;
	return 0;
}

int upload_buffer_return(struct upload_buffer *upload_buffer, struct error *err)
{
	struct upload *upload = upload_buffer->upload;

	upload_buffer->upload = NULL;
	upload_buffer->host = NULL;
	return upload ? upload_give(upload, upload_buffer->stream, err) : 0;
}

int upload_buffer_begin(struct upload_buffer *upload_buffer, size_t room, struct error *err)
{
	const size_t size = FIRST + room;
	int r = 0;

	if (!upload_buffer->host)
		r = upload_buffer->uploads ? borrow(upload_buffer, size, err)
		                           : open_upload_buffer(upload_buffer, err);
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

	if (bytes > upload_buffer->size - upload_buffer->used)
		return NULL;
	upload_buffer->used += upload_buffer_room(bytes);
	if (upload_buffer->used > upload_buffer->size)
		upload_buffer->used = upload_buffer->size;
	return p;
}

int upload_buffer_send(struct upload_buffer *upload_buffer, CUstream stream, uint64_t *ret, struct error *err)
{
	const size_t first = upload_buffer->first, end = upload_buffer->used;

	/* However little it is: entries that kernels read over the bus take 0.1 us each, one after the other.
	 */
	*ret = upload_buffer->device;
	if (first == end)
		return 0;
	if (upload_buffer->upload)
		return upload_send(upload_buffer->upload, first, end, stream, err);
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (upload_buffer->device + first, upload_buffer->host + first, end - first, stream));
}

int upload_buffer_fetch_counters(struct upload_buffer *upload_buffer, CUstream stream, struct error *err)
{
	if (upload_buffer->uploads)
		return 0;
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

/* ---- What moves need ----------------------------------------------------------------------------------- */

static uint64_t count_magnitudes(const struct engine_job *job)
{
	uint64_t most = 0;

	if (job->blocks)
		return 0;
	if (!job->moves)
		return launch_magnitudes(cuda_plan(job->move.plan));
	for (uint32_t i = 0; i < job->n_moves; i++) {
		const uint64_t n = launch_magnitudes(cuda_plan(job->moves[i].plan));

		most = n > most ? n : most;
	}
	return most;
}

/* They are never sent. */
static int take_magnitudes(struct upload_buffer *upload_buffer, uint64_t n, struct error *err)
{
	const void *p = upload_buffer_take(upload_buffer, n * sizeof(uint32_t));

	upload_buffer->first = upload_buffer->used;
	if (!p)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the magnitudes of %llu blocks are larger than %zu bytes",
		                 (unsigned long long)n, upload_buffer->size);
	upload_buffer->magnitudes = upload_buffer_place(upload_buffer, upload_buffer->device, p);
	return 0;
}

static size_t changed_bytes(const struct engine_job *job)
{
	return job_moves(job) * sizeof(uint64_t);
}

static int take_changed(struct upload_buffer *upload_buffer, const struct engine_job *job, struct error *err)
{
	upload_buffer->changed = upload_buffer_take(upload_buffer, changed_bytes(job));
	if (!upload_buffer->changed)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the counters of exact casts are larger than %zu bytes",
		                 upload_buffer->size);
	memset(upload_buffer->changed, 0, changed_bytes(job));
	return 0;
}

bool upload_buffer_is_needed(const struct upload_buffer *upload_buffer, const struct engine_job *job)
{
	return (!upload_buffer->uploads && job_is_exact(job)) || count_magnitudes(job) > 0;
}

int upload_buffer_begin_job(struct upload_buffer *upload_buffer, const struct engine_job *job, size_t room,
                            struct error *err)
{
	const uint64_t magnitudes = count_magnitudes(job);
	int r =
	    upload_buffer_begin(upload_buffer, upload_buffer_room(magnitudes * sizeof(uint32_t)) + room, err);

	if (r == 0 && magnitudes > 0)
		r = take_magnitudes(upload_buffer, magnitudes, err);
	if (r == 0 && job_is_exact(job) && !upload_buffer->uploads)
		r = take_changed(upload_buffer, job, err);
	return r;
}

struct convert_operands upload_buffer_operands(const struct upload_buffer *upload_buffer,
                                               struct engine_job *job, uint32_t i, uint64_t base)
{
	const struct engine_move *move = job_move(job, i);
	struct convert_operands ret;
	uint64_t changed = 0;

	if (move_is_exact(move) && upload_buffer->uploads)
		changed = upload_buffer->counts + offsetof(struct engine_counts, changed);
	else if (move_is_exact(move))
		changed = upload_buffer_place(upload_buffer, base, upload_buffer->changed + i);
	convert_operands_init(&ret, move, changed, upload_buffer->magnitudes);
	return ret;
}

int upload_buffer_fetch_changed(struct upload_buffer *upload_buffer, const struct engine_job *job,
                                CUstream stream, struct error *err)
{
	const void *changed = upload_buffer->changed;

	if (!changed)
		return 0;
	return driver_call(err, cuMemcpyDtoHAsync,
	                   (upload_buffer->changed,
	                    upload_buffer_place(upload_buffer, upload_buffer->device, changed),
	                    changed_bytes(job), stream));
}

int upload_buffer_judge(const struct upload_buffer *upload_buffer, struct engine_job *job)
{
	for (uint32_t i = 0; i < job_moves(job); i++) {
		struct engine_move *move = job_move(job, i);

		move->changed = move_is_exact(move) ? upload_buffer->changed[i] : 0;
		if (move->changed && (!job->moves || !move->status))
			move->status = STATUS_OUT_OF_RANGE;
	}
	return job->moves ? job_first_failure(job) : job->move.changed ? STATUS_OUT_OF_RANGE : 0;
}
