/* SPDX-License-Identifier: Apache-2.0 */
/* User objects. An object whose last reference goes is handed to a separate thread, which runs its destructor
 * without the lock. The thread starts with the first object and ends with the process. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "call.h"
#include "capture.h"

struct object {
	TAILQ_ENTRY(object) entry;
	unsigned long refs;
	CUhostFn destroy;
	void *arg;
};

struct hold {
	SLIST_ENTRY(hold) entry;
	struct object *object;
	unsigned long count;
};

TAILQ_HEAD(objects, object);
static struct objects objects = TAILQ_HEAD_INITIALIZER(objects);
static struct objects dead = TAILQ_HEAD_INITIALIZER(dead);

static struct {
	pthread_t thread;
	pthread_cond_t wake;
	bool is_started;
	bool is_stopping;
} destroyer = { .wake = PTHREAD_COND_INITIALIZER };

/* Aligned for clang's leak checker; context.c explains why. */
static _Thread_local _Alignas(64) bool is_destroyer;

bool object_is_destroying(void)
{
	return is_destroyer;
}

size_t object_live(void)
{
	const struct object *object;
	size_t n = 0;
	TAILQ_FOREACH(object, &objects, entry)
		n++;
	return n;
}

/* ---- The thread --------------------------------------------------------------------------------------- */

static void destroy_first(void)
{
	struct object *object = TAILQ_FIRST(&dead);
	TAILQ_REMOVE(&dead, object, entry);
	call_unlock();
	object->destroy(object->arg);
	free(object);
	call_lock();
}

static void *destroyer_main(void *arg)
{
	(void)arg;
	is_destroyer = true;
	call_lock();
	while (!destroyer.is_stopping) {
		if (!TAILQ_EMPTY(&dead))
			destroy_first();
		else
			call_wait_for(&destroyer.wake);
	}
	call_unlock();
	return NULL;
}

static CUresult destroyer_start(void)
{
	sigset_t all, old;
	if (destroyer.is_started)
		return CUDA_SUCCESS;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	destroyer.is_started = pthread_create(&destroyer.thread, NULL, destroyer_main, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return destroyer.is_started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The destructor of an object that is still queued then is not run, as at the end of any process. */
void object_stop(void)
{
	if (!destroyer.is_started)
		return;
	destroyer.is_stopping = true;
	pthread_cond_signal(&destroyer.wake);
	call_unlock();
	pthread_join(destroyer.thread, NULL);
	call_lock();
	destroyer.is_started = destroyer.is_stopping = false;
}

/* ---- References --------------------------------------------------------------------------------------- */

static struct object *find(CUuserObject handle)
{
	struct object *object;
	TAILQ_FOREACH(object, &objects, entry)
		if ((CUuserObject)object == handle)
			return object;
	return NULL;
}

static void release(struct object *object, unsigned long count)
{
	object->refs -= count;
	if (object->refs > 0)
		return;
	TAILQ_REMOVE(&objects, object, entry);
	TAILQ_INSERT_TAIL(&dead, object, entry);
	pthread_cond_signal(&destroyer.wake);
}

static CUresult create(CUuserObject *ret, void *arg, CUhostFn destroy, unsigned count, unsigned flags)
{
	if (!ret || !destroy || count == 0 || count > INT_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = destroyer_start();
	struct object *object = result == CUDA_SUCCESS ? malloc(sizeof *object) : NULL;
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*object = (struct object){ .refs = count, .destroy = destroy, .arg = arg };
	TAILQ_INSERT_TAIL(&objects, object, entry);
	*ret = (CUuserObject)object;
	return CUDA_SUCCESS;
}

static CUresult hold(struct holds *holds, struct object *object, unsigned long count)
{
	struct hold *new = malloc(sizeof *new);
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*new = (struct hold){ .object = object, .count = count };
	SLIST_INSERT_HEAD(holds, new, entry);
	return CUDA_SUCCESS;
}

CUresult holds_add(struct holds *holds, CUuserObject handle, unsigned count, bool moves)
{
	struct object *object = find(handle);
	if (!object || count == 0 || count > INT_MAX || (moves && object->refs < count))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hold(holds, object, count);
	if (result == CUDA_SUCCESS && !moves)
		object->refs += count;
	return result;
}

CUresult holds_copy(struct holds *ret, const struct holds *holds)
{
	const struct hold *old;
	SLIST_INIT(ret);
	SLIST_FOREACH(old, holds, entry) {
		if (hold(ret, old->object, old->count) != CUDA_SUCCESS) {
			holds_release(ret);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		old->object->refs += old->count;
	}
	return CUDA_SUCCESS;
}

void holds_release(struct holds *holds)
{
	struct hold *first;
	while ((first = SLIST_FIRST(holds))) {
		SLIST_REMOVE_HEAD(holds, entry);
		release(first->object, first->count);
		free(first);
	}
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *ret, void *arg, CUhostFn destroy, unsigned int count,
                                    unsigned int flags)
{
	return leave(enter(ENTRY_cuUserObjectCreate) ?: create(ret, arg, destroy, count, flags));
}

static CUresult release_some(CUuserObject handle, unsigned count)
{
	struct object *object = find(handle);
	if (!object || count == 0 || count > object->refs)
		return CUDA_ERROR_INVALID_VALUE;
	release(object, count);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	return leave(enter(ENTRY_cuUserObjectRelease) ?: release_some(object, count));
}
