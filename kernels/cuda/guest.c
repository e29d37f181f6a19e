/* SPDX-License-Identifier: Apache-2.0 */
/* A guest is an engine in a CUDA context of the program's own. It launches into the program's streams, on the
 * thread that calls. It has no thread and no queue; its own stream is only for setting up and reading counts,
 * and for reading words of timelines.
 *
 * There is one such engine for each context that has asked for one. Contexts are told apart by an id that the
 * driver never gives twice, so a new context at the address of an old one gets an engine of its own.
 */
#include "kernels/engine.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "cuda_plan.h"
#include "guest_trials.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/memory/words.h"
#include "kernels/cuda/stage/offload.h"
#include "kernels/cuda/stage/round.h"
#include "kernels/cuda/stage/transfers.h"
#include "kernels/cuda/stage/uploads.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/nest/loop_nest.h"
#include "proto/clock.h"

/* Maximum number of multiprocessors for a kernel that copies plain blocks over the bus. The kernel needs no
 * more, and with more it slows down whatever else runs on the device. While a kernel wrote a list of 4 KiB
 * blocks to the host, a matrix product of the same process kept 0.05 of its rate if the kernel had all 132
 * multiprocessors of an H200, and 0.53 if it had 4; the list moved at 50 GB/s either way. Lists whose blocks
 * are converted or transposed do need all multiprocessors: with 4, some took 29 times as long. */
#define BUS_MULTIPROCESSORS 4

/* Maximum numbers of plans (of some 10 KiB each), tensor maps and sets of counts (struct engine_counts) that
 * are kept for each context. */
#define MOST_PLANS  1024
#define MOST_MAPS   1024
#define MOST_COUNTS 4096

struct guest {
	struct engine engine;
	struct cuda_memory own;
	struct device device;
	unsigned long long context; /* id of the context, which the driver gives to no other */
	struct cuda_plans plans;
	struct guest_trials trials;
	struct map_cache maps;
	struct uploads uploads;
	struct offloads offloads;
	struct transfers transfers;
	CUstream stream; /* for setting up and reading counts, and for reading words */
	CUdeviceptr counts;
	pthread_mutex_t lock;         /* guards the fields below; guests_lock guards `next` */
	bool has_counts[MOST_COUNTS]; /* the sets of counts that are in use */
	/* Index at which the search for a free set of counts begins next. It moves on, so that a set that was
	 * given back is reused as late as possible. */
	uint32_t next_counts;
	struct guest *next;
};

static const struct engine_ops guest_ops;

static struct guest *guests;
static pthread_mutex_t guests_lock = PTHREAD_MUTEX_INITIALIZER;

static struct guest *guest_of(struct engine *engine)
{
	return (struct guest *)engine;
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

static void describe(struct guest *guest)
{
	const struct device *device = &guest->device;

	guest->own = (struct cuda_memory){
		.base = { .kind = REGION_KIND_CUDA_IPC, .writable = true, .size = UINT64_MAX, .seals = -1 }
	};
	guest->engine = (struct engine){ .ops = &guest_ops,
		                         .name = "cuda",
		                         .plans = &guest->plans.cache,
		                         .plans_by_phase = true,
		                         .multiprocessors = device->processors,
		                         .memory_bytes = device->memory_bytes,
		                         .own = &guest->own.base };
	snprintf(guest->engine.device, sizeof guest->engine.device, "%.80s, sm_%d%d", device->name,
	         device->major, device->minor);
	snprintf(guest->engine.device_name, sizeof guest->engine.device_name, "%.79s", device->name);
	snprintf(guest->engine.uuid, sizeof guest->engine.uuid, "%s", device->uuid);
}

static int open_caches(struct guest *guest, struct error *err)
{
	uint64_t seed = 0;
	int r = cuda_plans_init(&guest->plans, &guest->device, MOST_PLANS, err);

	guest->plans.tunes = true;
	if (getrandom(&seed, sizeof seed, 0) < 0)
		seed = clock_ns();
	return r < 0 ? r : map_cache_init(&guest->maps, MOST_MAPS, seed, err);
}

static int open_counts(struct guest *guest, struct error *err)
{
	const size_t bytes = MOST_COUNTS * sizeof(struct engine_counts);
	int r = driver_stream(&guest->stream, STREAM_MIDDLE, err);

	if (r == 0)
		r = driver_call(err, cuMemAlloc, (&guest->counts, bytes));
	if (r == 0)
		r = driver_call(err, cuMemsetD8Async, (guest->counts, 0, bytes, guest->stream));
	return r < 0 ? r : driver_call(err, cuStreamSynchronize, (guest->stream));
}

static void guest_free(struct guest *guest)
{
	if (guest->counts)
		driver.cuMemFree(guest->counts);
	if (guest->stream)
		driver.cuStreamDestroy(guest->stream);
	transfers_deinit(&guest->transfers);
	offloads_deinit(&guest->offloads);
	uploads_deinit(&guest->uploads);
	map_cache_deinit(&guest->maps);
	guest_trials_deinit(&guest->trials);
	cuda_plans_deinit(&guest->plans);
	device_close(&guest->device);
	free(guest);
}

static int guest_new(struct guest **ret, CUcontext context, unsigned long long id, struct error *err)
{
	struct guest *guest = calloc(1, sizeof *guest);
	int r;

	if (!guest)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	guest->context = id;
	pthread_mutex_init(&guest->lock, NULL);
	r = device_adopt(&guest->device, context, err);
	if (r < 0) {
		free(guest);
		return r;
	}
	describe(guest);
	guest_trials_init(&guest->trials, guest->device.ordinal);
	transfers_init(&guest->transfers);
	offloads_init(&guest->offloads, &guest->uploads);
	r = uploads_init(&guest->uploads, guest->device.handle, err);
	if (r == 0)
		r = open_caches(guest, err);
	if (r == 0)
		r = open_counts(guest, err);
	if (r < 0)
		guest_free(guest);
	else
		*ret = guest;
	return r;
}

/* ---- Finding ------------------------------------------------------------------------------------------ */

/* Returns whether the handle stands for a default stream of whichever context is current. */
static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* Checks that the stream belongs to the current context, and sets *ret to that context. If no context is
 * current, makes the stream's context current and leaves it so. */
static int enter_context(CUstream stream, CUcontext *ret, struct error *err)
{
	CUcontext of_stream;
	int r = driver_call(err, cuCtxGetCurrent, (ret));

	if (r == 0 && is_default(stream))
		return *ret ? 0
		            : error_set(err, STATUS_INVALID_ARGUMENT,
		                        "stream: no CUDA context is current in this thread");
	if (r == 0)
		r = driver_call(err, cuStreamGetCtx, (stream, &of_stream));
	if (r < 0 || of_stream == *ret)
		return r;
	if (*ret)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "stream: it is of another CUDA context than the current one");
	*ret = of_stream;
	return driver_call(err, cuCtxSetCurrent, (of_stream));
}

static struct guest *find(unsigned long long id)
{
	for (struct guest *guest = guests; guest; guest = guest->next)
		if (guest->context == id)
			return guest;
	return NULL;
}

/* Opens an engine for the context. Caller holds guests_lock. The program may be capturing a stream
 * meanwhile. */
static int open_one(CUcontext context, unsigned long long id, struct guest **ret, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = guest_new(ret, context, id, err);

	capture_restore(mode);
	if (r < 0)
		return r;
	(*ret)->next = guests;
	guests = *ret;
	return 0;
}

int engine_cuda_of_stream(struct engine **ret, void *stream, struct error *err)
{
	unsigned long long id;
	struct guest *guest;
	CUcontext context;
	int r = driver_open(err);

	if (r == 0)
		r = enter_context(stream, &context, err);
	if (r == 0)
		r = driver_call(err, cuCtxGetId, (context, &id));
	if (r < 0)
		return r;
	pthread_mutex_lock(&guests_lock);
	guest = find(id);
	if (!guest)
		r = open_one(context, id, &guest, err);
	pthread_mutex_unlock(&guests_lock);
	if (r == 0)
		*ret = &guest->engine;
	return r;
}

static int read_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

/* Returns how many libraries the program has loaded so far. This is quick. */
static unsigned long long count_loads(void)
{
	unsigned long long n = 0;

	dl_iterate_phdr(read_loads, &n);
	return n;
}

enum opened { OPENED, NOT_YET, NO_DRIVER };

/* Opens the driver if the program has loaded and initialized it. */
static enum opened open_loaded(void)
{
	void *library = dlopen(DRIVER_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
	__typeof__(&cuDeviceGetCount) count = library ? dlsym(library, "cuDeviceGetCount") : NULL;
	struct error ignored;
	int n;

	if (library)
		dlclose(library); /* The program keeps it loaded. */
	if (!count)
		return NO_DRIVER;
	if (count(&n) == CUDA_ERROR_NOT_INITIALIZED)
		return NOT_YET;
	return driver_open(&ignored) == 0 ? OPENED : NO_DRIVER;
}

/* Returns whether the program has a driver. Programs that move only host memory get here, too, so if there is
 * no driver, it is looked for again only after another library has been loaded. */
static bool has_driver(void)
{
	static atomic_bool is_open;
	static atomic_ullong loads; /* value of count_loads when there was no driver */
	unsigned long long now;

	if (atomic_load_explicit(&is_open, memory_order_acquire))
		return true;
	now = count_loads();
	if (now == atomic_load(&loads))
		return false;
	switch (open_loaded()) {
	case OPENED:
		atomic_store_explicit(&is_open, true, memory_order_release);
		return true;
	case NOT_YET:
		return false;
	default:
		atomic_store(&loads, now);
		return false;
	}
}

static bool is_managed(uint64_t address)
{
	unsigned is = 0;

	return driver.cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS &&
	       is;
}

bool engine_cuda_has(uint64_t address)
{
	CUmemorytype type;

	return has_driver() &&
	       driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
	           CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE && !is_managed(address);
}

void *engine_cuda_context(void)
{
	CUcontext context = NULL;

	return has_driver() && driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

void engine_cuda_enter(void *context)
{
	if (has_driver())
		driver.cuCtxSetCurrent(context);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static bool is_empty(const struct engine_job *job)
{
	return !job_is_many(job) && job->move.transform->count == 0;
}

static void set_families(struct engine_job *job)
{
	for (uint32_t i = 0; i < job_moves(job); i++) {
		struct engine_move *move = job_move(job, i);

		move->family = cuda_plan(move->plan)->family;
	}
}

/* Launches a single move, by a plan that is being tried or else by the fastest that is known. */
static int launch_single(struct guest *guest, struct many *many, struct error *err)
{
	struct engine_move *move = &many->job->move;
	struct guest_choice choice;
	int r;

	guest_trials_choose(&guest->trials, move->plan, cuda_memory(move->dst)->address + move->dst_offset,
	                    cuda_memory(move->src)->address + move->src_offset,
	                    many->job->share.multiprocessors != 0, many->stream, &choice);
	many->plan = choice.taken;
	move->family = choice.taken->family;
	r = many_launch(many, err);
	guest_trials_launched(&guest->trials, &choice, many->stream, r);
	return r;
}

static bool is_pinned(uint64_t address)
{
	CUmemorytype type;

	return driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
	           CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_HOST;
}

/* Launches a list of blocks. A long list between a device and pinned host memory goes by way of the copy
 * engine if it can; a kernel moves it over the bus otherwise. */
static int launch_list(struct guest *guest, const struct many *many, struct error *err)
{
	const struct engine_move *move = &many->job->move;
	bool dst_is_host, src_is_host, is_done;
	int r;

	if (job_bytes(many->job) < OFFLOAD_LEAST_BYTES)
		return many_launch(many, err);
	dst_is_host = is_pinned(cuda_memory(move->dst)->address + move->dst_offset);
	src_is_host = is_pinned(cuda_memory(move->src)->address + move->src_offset);
	r = offload_launch(&guest->offloads, many->launcher, many->job, dst_is_host, src_is_host,
	                   many->stream, many->upload_buffer->counts, &is_done, err);
	if (r < 0 || is_done)
		return r;
	if ((dst_is_host || src_is_host) && many->launcher->multiprocessors == 0 &&
	    !move->transform->conversion.is && loop_nest_is_run(move->transform))
		many->launcher->multiprocessors = BUS_MULTIPROCESSORS;
	return many_launch(many, err);
}

static int launch(struct guest *guest, struct many *many, struct error *err)
{
	if (many->job->blocks)
		return launch_list(guest, many, err);
	return many->job->moves ? many_launch(many, err) : launch_single(guest, many, err);
}

static int guest_launch(struct engine *base, struct engine_job *job, void *stream, uint64_t counts,
                        struct error *err)
{
	struct guest *guest = guest_of(base);
	struct launcher launcher = { .device = &guest->device, .maps = &guest->maps };
	struct upload_buffer upload_buffer = { .uploads = &guest->uploads,
		                               .stream = stream,
		                               .counts = counts };
	struct error ignored;
	int r = 0;

	set_families(job);
	if (is_empty(job))
		return 0;
	launcher_set_job(&launcher, job->share.multiprocessors);
	r = launch(guest,
	           &(struct many){
		       .launcher = &launcher, .upload_buffer = &upload_buffer, .job = job, .stream = stream },
	           err);
	if (r < 0) {
		upload_buffer_return(&upload_buffer, &ignored);
		return r;
	}
	r = upload_buffer_return(&upload_buffer, err);
	return r < 0 ? r : job_first_failure(job);
}

/* ---- Places ------------------------------------------------------------------------------------------- */

static int refuse_context(uint64_t address, const char *name, int device, struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "%s: %#llx is memory of another context of device %d than the current one", name,
	                 (unsigned long long)address, device);
}

/* Lets kernels of this context access the memory of a context on another device. */
static int reach(const struct guest *guest, CUcontext other, int device, const char *name, struct error *err)
{
	CUresult result;

	/* Memory from a pool, or mapped by address, has no context; whoever made it grants access to it. */
	if (!other)
		return 0;
	result = driver.cuCtxEnablePeerAccess(other, 0);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		return 0;
	if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
		return error_set(err, STATUS_UNSUPPORTED, "%s: device %d has no peer access to device %d",
		                 name, guest->device.ordinal, device);
	return driver_check(err, result, "cuCtxEnablePeerAccess");
}

/* Asks the driver for an attribute of memory, which must be memory that the driver knows. */
static int ask(CUpointer_attribute attribute, uint64_t address, void *ret, const char *name,
               struct error *err)
{
	CUresult result = driver.cuPointerGetAttribute(ret, attribute, address);

	if (result == CUDA_ERROR_INVALID_VALUE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: %#llx is neither memory of a device nor pinned memory of the host",
		                 name, (unsigned long long)address);
	return driver_check(err, result, "cuPointerGetAttribute");
}

/* Checks memory that was not allocated in this context. */
static int check_other(const struct guest *guest, CUcontext context, uint64_t address, const char *name,
                       struct error *err)
{
	CUmemorytype type = CU_MEMORYTYPE_DEVICE;
	int device = 0;
	int r = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type, name, err);

	if (r < 0 || type == CU_MEMORYTYPE_HOST)
		return r;
	r = ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &device, name, err);
	if (r < 0)
		return r;
	if (device != guest->device.ordinal)
		return reach(guest, context, device, name, err);
	return context ? refuse_context(address, name, device, err) : 0;
}

static int guest_find_home(struct engine *base, uint64_t address, enum engine_home *ret, struct error *err)
{
	CUmemorytype type = CU_MEMORYTYPE_DEVICE;
	CUresult result = driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);

	(void)base;
	*ret = type == CU_MEMORYTYPE_HOST ? ENGINE_HOME_PINNED : ENGINE_HOME_DEVICE;
	if (result != CUDA_ERROR_INVALID_VALUE)
		return driver_check(err, result, "cuPointerGetAttribute");
	*ret = ENGINE_HOME_HOST;
	return 0;
}

static int guest_check_place(struct engine *base, uint64_t address, const char *name, struct error *err)
{
	const struct guest *guest = guest_of(base);
	CUcontext context = NULL;

	if (driver.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) == CUDA_SUCCESS &&
	    context == guest->device.context)
		return 0;
	return check_other(guest, context, address, name, err);
}

/* ---- Counts ------------------------------------------------------------------------------------------- */

static void guest_counts_free(struct engine *base, uint64_t counts)
{
	struct guest *guest = guest_of(base);

	pthread_mutex_lock(&guest->lock);
	guest->has_counts[(counts - guest->counts) / sizeof(struct engine_counts)] = false;
	pthread_mutex_unlock(&guest->lock);
}

static int read_counts(struct guest *guest, uint64_t counts, CUstream stream, struct engine_counts *ret,
                       struct error *err)
{
	int r = driver_call(err, cuStreamSynchronize, (stream));

	if (r == 0)
		r = driver_call(err, cuMemcpyDtoHAsync, (ret, counts, sizeof *ret, guest->stream));
	return r < 0 ? r : driver_call(err, cuStreamSynchronize, (guest->stream));
}

static int guest_counts_read(struct engine *base, uint64_t counts, void *stream, struct engine_counts *ret,
                             struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = read_counts(guest_of(base), counts, stream, ret, err);

	capture_restore(mode);
	return r;
}

static uint32_t take_counts(struct guest *guest)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&guest->lock);
	while (n < MOST_COUNTS && guest->has_counts[(guest->next_counts + n) % MOST_COUNTS])
		n++;
	i = n < MOST_COUNTS ? (guest->next_counts + n) % MOST_COUNTS : MOST_COUNTS;
	if (i < MOST_COUNTS) {
		guest->has_counts[i] = true;
		guest->next_counts = (i + 1) % MOST_COUNTS;
	}
	pthread_mutex_unlock(&guest->lock);
	return i;
}

static int guest_counts_new(struct engine *base, uint64_t *ret, struct engine_counts *ret_now,
                            struct error *err)
{
	struct guest *guest = guest_of(base);
	const uint32_t i = take_counts(guest);
	int r;

	if (i == MOST_COUNTS)
		return error_set(err, STATUS_NO_MEMORY, "a context has counts for %d clients at most",
		                 MOST_COUNTS);
	*ret = guest->counts + i * sizeof(struct engine_counts);
	r = guest_counts_read(base, *ret, guest->stream, ret_now, err);
	if (r < 0)
		guest_counts_free(base, *ret);
	return r;
}

/* ---- Memory of the host ------------------------------------------------------------------------------- */

static int guest_scratch_new(struct engine *base, uint64_t bytes, void *stream, uint64_t *ret,
                             struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	CUdeviceptr address = 0;
	int r = driver_call(err, cuMemAllocFromPoolAsync,
	                    (&address, bytes, guest_of(base)->uploads.pool, stream));

	capture_restore(mode);
	*ret = address;
	return r;
}

static void guest_scratch_free(struct engine *base, uint64_t address, void *stream)
{
	const CUstreamCaptureMode mode = capture_allow();

	(void)base;
	driver.cuMemFreeAsync(address, stream);
	capture_restore(mode);
}

static int guest_bring_in(struct engine *base, struct engine_transfer *transfer, void *stream,
                          struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = transfers_bring_in(&guest_of(base)->transfers, transfer, stream, err);

	capture_restore(mode);
	return r;
}

static int guest_bring_out(struct engine *base, struct engine_transfer *transfer, void *stream,
                           struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = transfers_bring_out(&guest_of(base)->transfers, transfer, stream, err);

	capture_restore(mode);
	return r;
}

static int guest_copy(struct engine *base, uint64_t dst, uint64_t src, uint64_t bytes, void *stream,
                      struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	int r = driver_call(err, cuMemcpyAsync, (dst, src, (size_t)bytes, stream));

	(void)base;
	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (stream));
	capture_restore(mode);
	return r;
}

/* ---- Words of timelines ------------------------------------------------------------------------------- */

static int guest_word_read(struct engine *base, uint64_t address, uint64_t *ret, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	const CUstream stream = guest_of(base)->stream;
	int r = driver_call(err, cuMemcpyDtoHAsync, (ret, address, sizeof *ret, stream));

	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (stream));
	capture_restore(mode);
	return r;
}

/* Returns the status of a call that has put an operation on a timeline's word into a stream. */
static int check_word(CUresult result, const char *call, struct error *err)
{
	if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		return driver_check(err, result, call);
	return error_set(
	    err, STATUS_UNSUPPORTED,
	    "stream: it is being captured, and this CUDA driver takes no words of timelines into "
	    "a graph (%s); the capture has failed",
	    call);
}

static int guest_word_signal(struct engine *base, uint64_t address, uint64_t value, void *stream,
                             struct error *err)
{
	(void)base;
	return check_word(driver.cuStreamWriteValue64(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT),
	                  "cuStreamWriteValue64", err);
}

static int guest_word_wait(struct engine *base, uint64_t address, uint64_t value, void *stream,
                           struct error *err)
{
	(void)base;
	return check_word(driver.cuStreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ),
	                  "cuStreamWaitValue64", err);
}

static int guest_word_reach(struct engine *base, uint64_t address, uint64_t *ret, bool *ret_is_pinned,
                            struct error *err)
{
	CUdeviceptr reached = 0;
	int r = word_reach(address, &reached, ret_is_pinned, err);

	(void)base;
	*ret = reached;
	return r;
}

static void guest_word_leave(struct engine *base, uint64_t address)
{
	(void)base;
	word_leave(address);
}

/* ---- Others ------------------------------------------------------------------------------------------- */

static void guest_cache_stats(struct engine *base, struct engine_cache_stats *ret)
{
	map_cache_stats(&guest_of(base)->maps, ret);
}

static void add_stats(struct engine_cache_stats *sum, const struct engine_cache_stats *of)
{
	sum->hits += of->hits;
	sum->misses += of->misses;
	sum->evictions += of->evictions;
	sum->entries += of->entries;
}

void engine_cuda_add_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps)
{
	struct engine_cache_stats of;

	pthread_mutex_lock(&guests_lock);
	for (struct guest *guest = guests; guest; guest = guest->next) {
		engine_plan_stats(&guest->engine, &of);
		add_stats(plans, &of);
		engine_cache_stats(&guest->engine, &of);
		add_stats(maps, &of);
	}
	pthread_mutex_unlock(&guests_lock);
}

static int guest_explain(struct engine *base, struct engine_plan *plan, struct engine_explanation *ret,
                         struct error *err)
{
	(void)err;
	plan_explain(ret, cuda_plan(plan), engine_plan_transform(plan), &guest_of(base)->plans.facts);
	return 0;
}

static const struct engine_ops guest_ops = {
	.cache_stats = guest_cache_stats,
	.explain = guest_explain,
	.launch = guest_launch,
	.find_home = guest_find_home,
	.check_place = guest_check_place,
	.counts_new = guest_counts_new,
	.counts_free = guest_counts_free,
	.counts_read = guest_counts_read,
	.scratch_new = guest_scratch_new,
	.scratch_free = guest_scratch_free,
	.bring_in = guest_bring_in,
	.bring_out = guest_bring_out,
	.copy = guest_copy,
	.word_read = guest_word_read,
	.word_signal = guest_word_signal,
	.word_wait = guest_word_wait,
	.word_reach = guest_word_reach,
	.word_leave = guest_word_leave,
};
