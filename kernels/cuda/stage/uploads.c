/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps pinned pages in two lists: those that are free, and those whose launches the device has not been seen
 * to pass. */
#include "uploads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/cuda/driver/capture.h"

int uploads_init(struct uploads *uploads, CUdevice device, struct error *err)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                          .id = device } };
	cuuint64_t keep_all = UINT64_MAX;
	int r;

	*uploads = (struct uploads){ 0 };
	TAILQ_INIT(&uploads->free);
	TAILQ_INIT(&uploads->under_way);
	pthread_mutex_init(&uploads->lock, NULL);
	r = driver_call(err, cuMemPoolCreate, (&uploads->pool, &properties));
	if (r == 0)
		r = driver_call(err, cuMemPoolSetAttribute,
		                (uploads->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all));
	return r;
}

/* ---- Pages -------------------------------------------------------------------------------------------- */

static void upload_free(struct upload *upload)
{
	if (upload->passed)
		driver.cuEventDestroy(upload->passed);
	if (upload->host) {
		driver.cuMemHostUnregister(upload->host);
		munmap(upload->host, UPLOAD_BUFFER_BYTES);
	}
	free(upload);
}

static int pin(struct upload *upload, struct error *err)
{
	void *pages =
	    mmap(NULL, UPLOAD_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (pages == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	/* Without this, the first write after a fork could give this process a new page while the device
	 * keeps reading the old one. */
	madvise(pages, UPLOAD_BUFFER_BYTES, MADV_DONTFORK);
	r = driver_call(err, cuMemHostRegister, (pages, UPLOAD_BUFFER_BYTES, 0));
	if (r < 0)
		munmap(pages, UPLOAD_BUFFER_BYTES);
	else
		upload->host = pages;
	return r;
}

static int upload_new(struct uploads *uploads, struct upload **ret, struct error *err)
{
	struct upload *upload = calloc(1, sizeof *upload);
	int r;

	if (!upload)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	upload->of = uploads;
	r = pin(upload, err);
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&upload->passed, CU_EVENT_DISABLE_TIMING));
	if (r < 0)
		upload_free(upload);
	else
		*ret = upload;
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
	if (uploads->pool)
		driver.cuMemPoolDestroy(uploads->pool);
}

/* ---- Lending ------------------------------------------------------------------------------------------ */

/* Takes pages that are under way and that the device has passed. Those of a stream that is held up stay. */
static struct upload *take_passed(struct uploads *uploads)
{
	struct upload *upload;

	TAILQ_FOREACH(upload, &uploads->under_way, entry)
		if (driver.cuEventQuery(upload->passed) == CUDA_SUCCESS) {
			TAILQ_REMOVE(&uploads->under_way, upload, entry);
			return upload;
		}
	return NULL;
}

/* Returns pages that nobody uses, or NULL if there are none. */
static struct upload *take_idle(struct uploads *uploads)
{
	struct upload *upload;

	pthread_mutex_lock(&uploads->lock);
	upload = TAILQ_FIRST(&uploads->free);
	if (upload)
		TAILQ_REMOVE(&uploads->free, upload, entry);
	else
		upload = take_passed(uploads);
	pthread_mutex_unlock(&uploads->lock);
	return upload;
}

/* There are as many pages as launches with lists have been under way at once, which the driver bounds. */
static int take_pages(struct uploads *uploads, struct upload **ret, struct error *err)
{
	*ret = take_idle(uploads);
	return *ret ? 0 : upload_new(uploads, ret, err);
}

static void put_back(struct upload *upload, struct upload_list *list)
{
	struct uploads *uploads = upload->of;

	pthread_mutex_lock(&uploads->lock);
	TAILQ_INSERT_TAIL(list, upload, entry);
	pthread_mutex_unlock(&uploads->lock);
}

int upload_take(struct uploads *uploads, CUstream stream, struct upload **ret, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = take_pages(uploads, ret, err);

	capture_restore(mode);
	if (r < 0)
		return r;
	r = capture_graph(stream, &(*ret)->graph, err);
	if (r == 0)
		r = driver_call(err, cuMemAllocFromPoolAsync,
		                (&(*ret)->device, UPLOAD_BUFFER_BYTES, uploads->pool, stream));
	if (r < 0)
		put_back(*ret, &uploads->free);
	return r;
}

/* ---- Giving back -------------------------------------------------------------------------------------- */

/* The driver calls this on a thread of its own, where no driver call is allowed. */
static void CUDA_CB on_graph_gone(void *arg)
{
	struct upload *upload = arg;

	put_back(upload, &upload->of->free);
}

/* Hands the pages to the graph, which returns them when it and all that was instantiated from it are
 * destroyed. */
static int leave_to_graph(struct upload *upload, struct error *err)
{
	const CUgraph graph = upload->graph;
	CUuserObject object;
	int r = driver_call(err, cuUserObjectCreate,
	                    (&object, upload, on_graph_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));

	if (r < 0)
		return r;
	r = driver_call(err, cuGraphRetainUserObject, (graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	if (r < 0)
		driver.cuUserObjectRelease(object, 1);
	return r;
}

static int leave_to_stream(struct upload *upload, CUstream stream, struct error *err)
{
	int r = driver_call(err, cuEventRecord, (upload->passed, stream));

	if (r == 0)
		put_back(upload, &upload->of->under_way);
	return r;
}

int upload_give(struct upload *upload, CUstream stream, struct error *err)
{
	int r = driver_call(err, cuMemFreeAsync, (upload->device, stream));
	int left = upload->graph ? leave_to_graph(upload, err) : leave_to_stream(upload, stream, err);

	return r < 0 ? r : left;
}
