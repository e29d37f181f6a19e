/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: each device's primary context, those that cuCtxCreate makes, and the calling thread's stack of
 * current ones. */
#include <stdlib.h>

#include "call.h"
#include "softgpu.h"

static struct context primary[MOST_DEVICES];
static TAILQ_HEAD(, context) created = TAILQ_HEAD_INITIALIZER(created);
static uint64_t last_id;

/* Aligned so that no thread-local storage begins 16 bytes into a page: clang's leak checker would take what
 * lies before it for a header of glibc 2.19. */
static _Thread_local _Alignas(64) struct context *current;
static _Thread_local struct context *beneath[16];
static _Thread_local size_t depth;

void contexts_init(void)
{
	for (int i = 0; i < MOST_DEVICES; i++) {
		primary[i].ordinal = i;
		primary[i].is_primary = true;
	}
}

CUresult context_check(void)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	return current->refs > 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

struct context *context_current(void)
{
	return current;
}

int context_current_ordinal(void)
{
	return current ? current->ordinal : devices_count() == 1 ? 0 : NO_DEVICE;
}

struct context *context_next(const struct context *context)
{
	if (!context)
		return &primary[0];
	if (!context->is_primary)
		return TAILQ_NEXT(context, entry);
	return context < &primary[MOST_DEVICES - 1] ? &primary[context - primary + 1] : TAILQ_FIRST(&created);
}

struct context *context_find(CUcontext handle)
{
	struct context *context = NULL;
	while ((context = context_next(context)))
		if ((CUcontext)context == handle)
			return context;
	return NULL;
}

int context_ordinal(CUcontext handle)
{
	const struct context *context = context_find(handle);
	return context ? context->ordinal : NO_DEVICE;
}

CUresult context_fails(const struct context *context)
{
	return context->refs > 0 ? call_stuck(context->ordinal) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool context_any(int device)
{
	const struct context *context = NULL;
	while ((context = context_next(context)))
		if (context->ordinal == device && context->refs > 0)
			return true;
	return false;
}

size_t context_live(void)
{
	const struct context *context = NULL;
	size_t n = 0;
	while ((context = context_next(context)))
		n += context->refs;
	return n;
}

/* ---- Lives -------------------------------------------------------------------------------------------- */

/* A context that is retained again after its end gets a new id. */
static CUresult add_reference(struct context *context)
{
	CUresult result = stream_new_legacy(context) ?: queue_start(context->ordinal);
	if (result == CUDA_SUCCESS && context->refs++ == 0)
		context->id = ++last_id;
	return result;
}

/* With a device's last context its threads end, and the peer access from and to the device is revoked. */
static void drop_reference(struct context *context)
{
	struct context *other = NULL;
	if (--context->refs > 0)
		return;
	context->peers = 0;
	if (context_any(context->ordinal))
		return;
	queue_stop(context->ordinal);
	while ((other = context_next(other)))
		other->peers &= (device_set)~device_bit(context->ordinal);
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	CUresult result = add_reference(&primary[device]);
	if (result == CUDA_SUCCESS)
		*ret = (CUcontext)&primary[device];
	return result;
}

static CUresult release(CUdevice device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (primary[device].refs == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	drop_reference(&primary[device]);
	return CUDA_SUCCESS;
}

static CUresult push(struct context *context)
{
	if (depth == sizeof beneath / sizeof *beneath)
		return CUDA_ERROR_OUT_OF_MEMORY;
	beneath[depth++] = current;
	current = context;
	return CUDA_SUCCESS;
}

/* If the stack had one entry, the thread is left without a context. */
static void pop(void)
{
	current = depth > 0 ? beneath[--depth] : NULL;
}

static CUresult create(CUcontext *ret, const CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	if (!ret || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (params && (params->numExecAffinityParams > 0 || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct context *context = malloc(sizeof *context);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*context = (struct context){ .ordinal = device };
	TAILQ_INSERT_TAIL(&created, context, entry);
	CUresult result = add_reference(context) ?: push(context);
	if (result == CUDA_SUCCESS)
		*ret = (CUcontext)context;
	return result;
}

/* Waits for the work under way in the context first. */
static CUresult destroy(CUcontext handle)
{
	struct context *context = context_find(handle);
	if (!context || context->is_primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = context_fails(context) ?: stream_drain_all(context);
	if (result != CUDA_SUCCESS)
		return result;
	streams_destroy(context);
	events_destroy(context);
	modules_destroy(context);
	ranges_destroy(context);
	drop_reference(context);
	if (current == context)
		pop();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
	return leave(enter_of(ENTRY_cuDevicePrimaryCtxRetain, device) ?: retain(ret, device));
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
	return leave(enter_of(ENTRY_cuDevicePrimaryCtxRelease, device) ?: release(device));
}

CUresult CUDAAPI cuCtxCreate(CUcontext *ret, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	return leave(enter_of(ENTRY_cuCtxCreate, device) ?: create(ret, params, flags, device));
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context)
{
	return leave(enter(ENTRY_cuCtxDestroy) ?: destroy(context));
}

/* ---- The calling thread's ------------------------------------------------------------------------------ */

/* A primary context may be retained again after its end; one that cuCtxCreate made may not. */
static CUresult check_handle(CUcontext handle)
{
	const struct context *context = context_find(handle);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context->is_primary || context->refs > 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult set_current(CUcontext context)
{
	CUresult result = context ? check_handle(context) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		current = (struct context *)context;
	return result;
}

static CUresult get_current(CUcontext *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUcontext)current;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext context)
{
	return check_handle(context) ?: push((struct context *)context);
}

static CUresult pop_current(CUcontext *ret)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ret)
		*ret = (CUcontext)current;
	pop();
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = current->ordinal;
	return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext handle, unsigned long long *ret)
{
	const struct context *context = handle ? context_find(handle) : current;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context->refs == 0)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret = context->id;
	return CUDA_SUCCESS;
}

static CUresult get_priorities(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
	CUresult result;
	if (!context)
		return leave(enter(ENTRY_cuCtxSetCurrent) ?: set_current(context));
	call_lock();
	int ordinal = context_ordinal(context);
	call_unlock();
	result = enter_of(ENTRY_cuCtxSetCurrent, ordinal);
	return leave(result ?: set_current(context));
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret)
{
	return leave(enter(ENTRY_cuCtxGetCurrent) ?: get_current(ret));
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
	return leave(enter(ENTRY_cuCtxPushCurrent) ?: push_current(context));
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *ret)
{
	return leave(enter(ENTRY_cuCtxPopCurrent) ?: pop_current(ret));
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *ret)
{
	return leave(enter(ENTRY_cuCtxGetDevice) ?: get_device(ret));
}

CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *ret)
{
	return leave(enter(ENTRY_cuCtxGetId) ?: get_id(context, ret));
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	return leave(enter(ENTRY_cuCtxGetStreamPriorityRange) ?: get_priorities(least, greatest));
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	return leave(enter(ENTRY_cuCtxSynchronize) ?: stream_drain_all(current));
}
