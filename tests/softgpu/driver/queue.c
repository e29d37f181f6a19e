/* SPDX-License-Identifier: Apache-2.0 */
/* The device: one thread that runs the operations of all streams, one at a time, and the streams themselves.
 *
 * An operation stays first in its stream while it runs. Which streams can go on is decided by the events that
 * their first operations wait for and by the default stream's rule: it and the blocking ones take turns in
 * the order submitted. Among those that can, chance decides. When something sticks, all that is left is
 * thrown away and no mark of it is ever reached.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "call.h"
#include "softgpu.h"

#define LOOK_AGAIN_US 20

static TAILQ_HEAD(, stream) streams = TAILQ_HEAD_INITIALIZER(streams);
static uint64_t last_number;
static struct stream legacy = {
	.is_legacy = true,
	.is_blocking = true,
	.ops = STAILQ_HEAD_INITIALIZER(legacy.ops),
};

static pthread_t thread;
static bool is_started;
static bool is_stopping;

static void *device_main(void *arg);
static void throw_away(void);

/* ---- The thread -------------------------------------------------------------------------------------- */

CUresult queue_start(void)
{
	sigset_t all, old;
	int r;
	if (is_started)
		return CUDA_SUCCESS;
	if (TAILQ_EMPTY(&streams))
		TAILQ_INSERT_HEAD(&streams, &legacy, entry);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_create(&thread, NULL, device_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	is_started = true;
	return CUDA_SUCCESS;
}

void queue_stop(void)
{
	if (!is_started)
		return;
	is_stopping = true;
	call_wake();
	call_unlock();
	pthread_join(thread, NULL);
	call_lock();
	throw_away();
	is_started = is_stopping = false;
}

/* Whether another stream's operation has to end before. */
static bool is_behind(const struct stream *stream, const struct op *op)
{
	const struct stream *other;
	if (!stream->is_blocking)
		return false;
	TAILQ_FOREACH(other, &streams, entry) {
		const struct op *first = STAILQ_FIRST(&other->ops);
		if (other->is_blocking && other->is_legacy != stream->is_legacy && first &&
		    first->number < op->number)
			return true;
	}
	return false;
}

static bool is_ready(const struct stream *stream)
{
	const struct op *op = STAILQ_FIRST(&stream->ops);
	return op && (!op->after || op->after->reached) && !is_behind(stream, op) &&
	       (!op->is_due || op->is_due(op));
}

/* Whether something may become due that nobody tells of. */
static bool has_to_look_again(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (!STAILQ_EMPTY(&stream->ops) && STAILQ_FIRST(&stream->ops)->is_due)
			return true;
	return false;
}

static struct stream *choose(void)
{
	struct stream *stream, *chosen = NULL;
	uint32_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry)
		if (is_ready(stream) && call_random(++n) == 0)
			chosen = stream;
	return chosen;
}

static void op_free(struct op *op)
{
	mark_unref(op->after);
	mark_unref(op->reaches);
	free(op);
}

/* The first operation is over; so may be the stream. */
static void drop_first(struct stream *stream)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	STAILQ_REMOVE_HEAD(&stream->ops, entry);
	op_free(op);
	if (stream->is_destroyed && STAILQ_EMPTY(&stream->ops)) {
		TAILQ_REMOVE(&streams, stream, entry);
		free(stream);
	}
}

static void throw_away(void)
{
	struct stream *stream, *next;
	for (stream = TAILQ_FIRST(&streams); stream; stream = next) {
		next = TAILQ_NEXT(stream, entry);
		for (bool more = !STAILQ_EMPTY(&stream->ops); more;) {
			more = STAILQ_NEXT(STAILQ_FIRST(&stream->ops), entry) != NULL;
			drop_first(stream);
		}
	}
}

static void run_first(struct stream *stream)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	if (op->run) {
		call_unlock();
		CUresult result = op->run(op);
		call_lock();
		if (result != CUDA_SUCCESS)
			call_stick(result);
	}
	if (call_stuck() != CUDA_SUCCESS)
		return;
	if (op->reaches) {
		op->reaches->ns = call_now_ns();
		op->reaches->reached = true;
	}
	drop_first(stream);
}

static void *device_main(void *arg)
{
	(void)arg;
	call_lock();
	while (!is_stopping) {
		struct stream *stream = call_stuck() == CUDA_SUCCESS ? choose() : NULL;
		if (call_stuck() != CUDA_SUCCESS)
			throw_away();
		if (stream)
			run_first(stream);
		call_wake();
		if (stream || is_stopping)
			continue;
		if (has_to_look_again())
			call_wait_us(LOOK_AGAIN_US);
		else
			call_wait();
	}
	call_unlock();
	return NULL;
}

/* ---- Streams ------------------------------------------------------------------------------------------ */

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority)
{
	struct stream *stream = malloc(sizeof *stream);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stream = (struct stream){ .context = context, .is_blocking = blocking, .priority = priority };
	STAILQ_INIT(&stream->ops);
	TAILQ_INSERT_TAIL(&streams, stream, entry);
	*ret = stream;
	return CUDA_SUCCESS;
}

void stream_destroy(struct stream *stream)
{
	stream->is_destroyed = true;
	if (!STAILQ_EMPTY(&stream->ops))
		return;
	TAILQ_REMOVE(&streams, stream, entry);
	free(stream);
}

struct stream *stream_find(CUstream handle)
{
	struct stream *stream;
	if (!handle || handle == CU_STREAM_LEGACY)
		return &legacy;
	TAILQ_FOREACH(stream, &streams, entry)
		if ((CUstream)stream == handle && !stream->is_destroyed && !stream->is_legacy)
			return stream;
	return NULL;
}

size_t stream_live(void)
{
	const struct stream *stream;
	size_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry)
		n += !stream->is_legacy;
	return n;
}

void stream_push(struct stream *stream, struct op *op)
{
	op->number = ++last_number;
	STAILQ_INSERT_TAIL(&stream->ops, op, entry);
	call_wake();
}

CUresult stream_drain(struct stream *stream)
{
	while (!STAILQ_EMPTY(&stream->ops) && call_stuck() == CUDA_SUCCESS)
		call_wait();
	return call_stuck();
}

static bool is_idle(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (!STAILQ_EMPTY(&stream->ops))
			return false;
	return true;
}

CUresult queue_drain(void)
{
	while (!is_idle() && call_stuck() == CUDA_SUCCESS)
		call_wait();
	return call_stuck();
}

/* ---- Marks -------------------------------------------------------------------------------------------- */

struct mark *mark_new(void)
{
	struct mark *mark = malloc(sizeof *mark);
	if (mark)
		*mark = (struct mark){ .refs = 1 };
	return mark;
}

void mark_unref(struct mark *mark)
{
	if (mark && --mark->refs == 0)
		free(mark);
}
