/* SPDX-License-Identifier: Apache-2.0 */
/* Lends pinned pages. Those that are not lent are in two lists: free ones, and ones whose launches may still
 * be under way on the device. Upload buffers use such pages, or pages of a flight's own. */
#include "uploads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/strategy/tuning.h"

/* When the pages for long lists would exceed this many bytes in total, idle ones are unpinned first. */
#define MOST_LONG_BYTES (64u << 20)

/* Bytes of device memory that the pool keeps while nothing uses them: the scratch memory of one list
 * (SCRATCH_BYTES in offload.c; where a list takes twice as much, the driver maps half of it anew in each
 * call), and 32 MiB for lists and results. With 64 MiB, where the driver maps the rest anew in each call, a
 * list came in at 40.6 GB/s beside another process; with 1 GiB it came in at 46.1 GB/s. 288 MiB was not
 * measured. */
#define KEPT_BYTES (288u << 20)

/* Device memory that a graph reads. The driver announces the end of a graph by a callback in which no driver
 * call is allowed, so the memory is freed by the next call that takes pages. */
struct graph_memory {
	CUdeviceptr device;
	struct uploads *of;
	struct graph_memory *next;
};

int uploads_init(struct uploads *uploads, CUdevice device, struct error *err)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                          .id = device } };
	cuuint64_t kept = KEPT_BYTES;
	int never = 0;
	int r;

	*uploads = (struct uploads){ 0 };
	TAILQ_INIT(&uploads->free);
	TAILQ_INIT(&uploads->under_way);
	pthread_mutex_init(&uploads->lock, NULL);
	r = driver_stream(&uploads->stream, STREAM_MIDDLE, err);
	if (r == 0)
		r = driver_call(err, cuMemPoolCreate, (&uploads->pool, &properties));
	if (r == 0)
		r = driver_call(err, cuMemPoolSetAttribute,
		                (uploads->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept));
	/* Otherwise a stream could be made to wait for another stream's work before it gets memory that this
	 * work frees. */
	if (r == 0)
		r = driver_call(err, cuMemPoolSetAttribute,
		                (uploads->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &never));
	return r;
}

/* ---- Pages -------------------------------------------------------------------------------------------- */

static void upload_free(struct upload *upload)
{
	if (upload->passed)
		driver.cuEventDestroy(upload->passed);
	driver_unpin(upload->host, upload->size);
	free(upload);
}

static int upload_new(struct uploads *uploads, size_t size, struct upload **ret, struct error *err)
{
	struct upload *upload = calloc(1, sizeof *upload);
	void *pages = NULL;
	int r;

	if (!upload)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	upload->of = uploads;
	upload->size = size;
	/* Without MADV_DONTFORK, the first write after a fork could give this process a new page while the
	 * device keeps reading the old one. */
	r = driver_pin(&pages, size, MADV_DONTFORK, 0, err);
	upload->host = pages;
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&upload->passed, CU_EVENT_DISABLE_TIMING));
	if (r < 0)
		upload_free(upload);
	else
		*ret = upload;
	return r;
}

/* ---- Memory of graphs --------------------------------------------------------------------------------- */

static void graph_memory_free(struct graph_memory *memory)
{
	if (memory->device)
		driver.cuMemFreeAsync(memory->device, memory->of->stream);
	free(memory);
}

static void free_left_over(struct uploads *uploads)
{
	struct graph_memory *memory = atomic_exchange(&uploads->left_over, NULL), *next;

	for (; memory; memory = next) {
		next = memory->next;
		graph_memory_free(memory);
	}
}

/* Allocates memory for a graph. Once the allocating stream has been synchronized, which this does, any stream
 * may use the memory. */
static int graph_memory_new(struct uploads *uploads, size_t size, struct graph_memory **ret,
                            struct error *err)
{
	struct graph_memory *memory = calloc(1, sizeof *memory);
	int r;

	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memory->of = uploads;
	r = driver_call(err, cuMemAllocFromPoolAsync,
	                (&memory->device, size, uploads->pool, uploads->stream));
	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (uploads->stream));
	if (r < 0)
		graph_memory_free(memory);
	else
		*ret = memory;
	return r;
}

/* The driver calls this, possibly while it holds locks of its own, and no driver call is allowed here. This
 * takes no lock, because the thread that holds the lock may be waiting for the driver. */
static void CUDA_CB on_graph_gone(void *arg)
{
	struct graph_memory *memory = arg;

	memory->next = atomic_load(&memory->of->left_over);
	while (!atomic_compare_exchange_weak(&memory->of->left_over, &memory->next, memory))
		continue;
}

/* Hands the memory to the graph. on_graph_gone gets it back once the graph and everything that was
 * instantiated from it have been destroyed and have run to their end. */
static int leave_to_graph(struct graph_memory *memory, CUgraph graph, struct error *err)
{
	CUuserObject object;
	int r = driver_call(err, cuUserObjectCreate,
	                    (&object, memory, on_graph_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));

	if (r < 0) {
		on_graph_gone(memory);
		return r;
	}
	r = driver_call(err, cuGraphRetainUserObject, (graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	if (r < 0)
		driver.cuUserObjectRelease(object, 1);
	return r;
}

void uploads_deinit(struct uploads *uploads)
{
	struct upload *upload;

	TAILQ_CONCAT(&uploads->free, &uploads->under_way, entry);
	while ((upload = TAILQ_FIRST(&uploads->free))) {
		TAILQ_REMOVE(&uploads->free, upload, entry);
		upload_free(upload);
	}
	free_left_over(uploads);
	if (uploads->pool)
		driver.cuMemPoolDestroy(uploads->pool);
	if (uploads->stream)
		driver.cuStreamDestroy(uploads->stream);
}

/* ---- Lending ------------------------------------------------------------------------------------------ */

static bool is_long(const struct upload *upload)
{
	return upload->size > UPLOAD_BUFFER_BYTES;
}

/* Finds pages of exactly that size that are not in use, removes them from their list and returns them.
 * Returns NULL if there are none. Pages that were given back qualify once the device has passed their event.
 * size == 0 stands for long pages of any size. Caller holds uploads->lock. */
static struct upload *find_idle(struct uploads *uploads, size_t size)
{
	struct upload_list *lists[] = { &uploads->free, &uploads->under_way };
	struct upload *upload;

	for (int i = 0; i < 2; i++)
		TAILQ_FOREACH(upload, lists[i], entry)
			if ((size ? upload->size == size : is_long(upload)) &&
			    (i == 0 || driver.cuEventQuery(upload->passed) == CUDA_SUCCESS)) {
				TAILQ_REMOVE(lists[i], upload, entry);
				return upload;
			}
	return NULL;
}

/* If new long pages of that size would exceed MOST_LONG_BYTES, removes and returns idle long pages for the
 * caller to free. Returns NULL if there are none or the new pages fit; the new pages are then counted. */
static struct upload *count_long(struct uploads *uploads, size_t size)
{
	struct upload *victim = NULL;

	pthread_mutex_lock(&uploads->lock);
	if (uploads->long_bytes + size > MOST_LONG_BYTES)
		victim = find_idle(uploads, 0);
	uploads->long_bytes += victim ? 0 - (uint64_t)victim->size : size;
	pthread_mutex_unlock(&uploads->lock);
	return victim;
}

static int make_pages(struct uploads *uploads, size_t size, struct upload **ret, struct error *err)
{
	struct upload *victim;
	int r;

	if (size == UPLOAD_BUFFER_BYTES)
		return upload_new(uploads, size, ret, err);
	while ((victim = count_long(uploads, size)))
		upload_free(victim);
	r = upload_new(uploads, size, ret, err);
	if (r < 0) {
		pthread_mutex_lock(&uploads->lock);
		uploads->long_bytes -= size;
		pthread_mutex_unlock(&uploads->lock);
	}
	return r;
}

static size_t size_of_pages(size_t size)
{
	size_t ret = UPLOAD_BUFFER_BYTES;

	while (ret < size)
		ret *= 2;
	return ret;
}

/* Pages are never freed except to make room for long ones, so there are as many as the largest number of
 * launches with lists that were under way at once, which the driver bounds. */
static int take_pages(struct uploads *uploads, size_t size, struct upload **ret, struct error *err)
{
	pthread_mutex_lock(&uploads->lock);
	*ret = find_idle(uploads, size);
	pthread_mutex_unlock(&uploads->lock);
	return *ret ? 0 : make_pages(uploads, size, ret, err);
}

static void put_back(struct upload *upload, struct upload_list *list)
{
	struct uploads *uploads = upload->of;

	pthread_mutex_lock(&uploads->lock);
	TAILQ_INSERT_TAIL(list, upload, entry);
	pthread_mutex_unlock(&uploads->lock);
}

static int take_memory(struct upload *upload, CUstream stream, size_t size, struct error *err)
{
	int r = capture_graph(stream, &upload->graph, err);

	if (r < 0)
		return r;
	if (!upload->graph)
		return driver_call(err, cuMemAllocFromPoolAsync,
		                   (&upload->device, size, upload->of->pool, stream));
	r = graph_memory_new(upload->of, size, &upload->holding, err);
	if (r == 0)
		upload->device = upload->holding->device;
	return r;
}

int upload_take(struct uploads *uploads, CUstream stream, size_t size, struct upload **ret, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r;

	free_left_over(uploads);
	r = take_pages(uploads, size_of_pages(size), ret, err);
	if (r == 0) {
		r = take_memory(*ret, stream, size, err);
		if (r < 0)
			put_back(*ret, &uploads->free);
	}
	capture_restore(mode);
	return r;
}

static int send_to_graph(const struct upload *upload, size_t from, size_t to, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	const CUstream stream = upload->of->stream;
	int r = driver_call(err, cuMemcpyHtoDAsync,
	                    (upload->device + from, upload->host + from, to - from, stream));

	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (stream));
	capture_restore(mode);
	return r;
}

/* Copies bytes [from, to) of the pages to the device, for launches that are enqueued on the stream next. */
static int upload_send(const struct upload *upload, size_t from, size_t to, CUstream stream,
                       struct error *err)
{
	if (upload->graph)
		return send_to_graph(upload, from, to, err);
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (upload->device + from, upload->host + from, to - from, stream));
}

/* ---- Giving back -------------------------------------------------------------------------------------- */

static int give_to_graph(struct upload *upload, struct error *err)
{
	struct graph_memory *memory = upload->holding;
	const CUgraph graph = upload->graph;

	put_back(upload, &upload->of->free); /* The lists have been copied to the device already. */
	return leave_to_graph(memory, graph, err);
}

int upload_give(struct upload *upload, CUstream stream, struct error *err)
{
	int r, passed;

	if (upload->graph)
		return give_to_graph(upload, err);
	r = driver_call(err, cuMemFreeAsync, (upload->device, stream));
	passed = driver_call(err, cuEventRecord, (upload->passed, stream));
	if (passed == 0)
		put_back(upload, &upload->of->under_way);
	return r < 0 ? r : passed;
}

/* ---- Upload buffers ------------------------------------------------------------------------------------ */

/* The buffer begins with two counters, in the pages and in the device memory. Lists begin at FIRST. */
#define COUNTER_BYTES (2 * sizeof(uint64_t))
#define FIRST         64

static_assert(AMAX_MAGNITUDES * sizeof(uint32_t) <= UPLOAD_BUFFER_BYTES / 2, "lists fit beside them");

static int open_upload_buffer(struct upload_buffer *upload_buffer, struct error *err)
{
	CUdeviceptr device = 0;
	void *pages = NULL;
	int r = driver_pin(&pages, UPLOAD_BUFFER_BYTES, MADV_NORMAL, 0, err);

	if (r == 0)
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
	driver_unpin(upload_buffer->host, UPLOAD_BUFFER_BYTES);
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

	/* Even the shortest lists are copied: entries that kernels read over the bus take 0.1 us each, one
	 * after the other. */
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

/* Takes room for the magnitudes. They exist only on the device, so the bytes to be sent begin behind them. */
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
