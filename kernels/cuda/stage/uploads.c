/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps pinned pages in two lists: those that are free, and those whose launches the device has not been seen
 * to pass. */
#include "uploads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/cuda/driver/capture.h"

/* Idle pages for long lists are unpinned when all of those would have more bytes than this. */
#define MOST_LONG_BYTES (64u << 20)

/* The pool keeps so many bytes of the device when nothing uses them. */
#define KEPT_BYTES (64u << 20)

/* Memory of the device that a graph reads. The driver tells of the end of a graph where no driver call is
 * allowed; whoever takes pages next frees the memory. */
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
	return r;
}

/* ---- Pages -------------------------------------------------------------------------------------------- */

static void upload_free(struct upload *upload)
{
	if (upload->passed)
		driver.cuEventDestroy(upload->passed);
	if (upload->host) {
		driver.cuMemHostUnregister(upload->host);
		munmap(upload->host, upload->size);
	}
	free(upload);
}

static int pin(struct upload *upload, struct error *err)
{
	void *pages = mmap(NULL, upload->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (pages == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	/* Without this, the first write after a fork could give this process a new page while the device
	 * keeps reading the old one. */
	madvise(pages, upload->size, MADV_DONTFORK);
	r = driver_call(err, cuMemHostRegister, (pages, upload->size, 0));
	if (r < 0)
		munmap(pages, upload->size);
	else
		upload->host = pages;
	return r;
}

static int upload_new(struct uploads *uploads, size_t size, struct upload **ret, struct error *err)
{
	struct upload *upload = calloc(1, sizeof *upload);
	int r;

	if (!upload)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	upload->of = uploads;
	upload->size = size;
	r = pin(upload, err);
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

/* The memory is there for everybody once the stream has been waited for, which upload_send does. */
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

/* The driver calls this, with whatever locks of its own, where no driver call is allowed. It takes no lock,
 * because whoever has one may be waiting for the driver. */
static void CUDA_CB on_graph_gone(void *arg)
{
	struct graph_memory *memory = arg;

	memory->next = atomic_load(&memory->of->left_over);
	while (!atomic_compare_exchange_weak(&memory->of->left_over, &memory->next, memory))
		continue;
}

/* Hands the memory to the graph, which returns it when it and all that was instantiated from it are destroyed
 * and have run to their end. */
static int leave_to_graph(struct graph_memory *memory, CUgraph graph, struct error *err)
{
	CUuserObject object;
	int r = driver_call(err, cuUserObjectCreate,
	                    (&object, memory, on_graph_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));

	if (r < 0)
		return r;
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

/* The caller holds the lock. Returns pages of that size that nobody uses, or NULL: pages under way are those
 * that the device has passed. size 0 stands for those of any long list. */
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

/* Returns idle pages that are to make room for long ones of that size, or NULL if there are none or there is
 * room. Otherwise counts the new ones. */
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

/* There are as many pages as launches with lists have been under way at once, which the driver bounds. */
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

int upload_send(const struct upload *upload, size_t from, size_t to, CUstream stream, struct error *err)
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

	put_back(upload, &upload->of->free); /* The device has the lists already. */
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
