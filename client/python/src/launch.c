/* SPDX-License-Identifier: Apache-2.0 */
/* Launches requests of a client without a service into the program's CUDA streams, on the calling thread. It
 * notes the contexts in which it has launched something, so that Client.synchronize can wait for them. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_CONTEXTS 64

struct launched {
	/* Contexts in which something has been launched. NULL stands for the context of the thread that
	 * waits. */
	void *contexts[MOST_CONTEXTS];
	size_t n;
	uint64_t changed; /* number of values that exact casts have changed and no call has reported */
};

/* Notes that something is launched in a context. Caller holds the client's lock. Returns false if memory is
 * exhausted, or there are too many contexts to wait for all of them. */
static bool note(struct py_client *c, void *of)
{
	struct launched *launched = c->launched;

	if (!launched)
		launched = c->launched = calloc(1, sizeof *launched);
	if (!launched)
		return false;
	for (size_t i = 0; i < launched->n; i++)
		if (launched->contexts[i] == of)
			return true;
	if (launched->n == MOST_CONTEXTS)
		return false;
	launched->contexts[launched->n++] = of;
	return true;
}

/* Takes the client's lock for work in the stream's context, which it notes. Returns false with an
 * exception. */
static bool enter(struct py_client *c, const struct cuda_stream *stream)
{
	if (!py_client_enter(c))
		return false;
	if (note(c, stream->context))
		return true;
	PyErr_NoMemory();
	py_client_unlock(c);
	return false;
}

/* Enqueues a resolved request in the stream's context. Caller holds the lock and not the GIL. */
static int enqueue(struct py_client *c, const struct cuda_stream *stream, const struct py_request *q,
                   struct resolved *r, const struct tma_order *order)
{
	void *before = cuda_switch(stream->context);
	struct tma_enqueued counts = { 0 };
	int rc = 0;

	/* The library cannot put a reshard into a stream: it runs within the call. So first waits for the
	 * work in the stream, which may write the sources. */
	if (q->kind == REQUEST_RESHARD)
		rc = tma_enqueued(c->client, stream->handle, &counts);
	c->launched->changed += counts.changed;
	if (rc == 0)
		rc = resolved_enqueue(c, q, r, order, stream->handle);
	cuda_switch(before);
	return rc;
}

int launch(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
           const struct tma_order *order)
{
	struct resolved r;
	int rc;

	if (!enter(c, stream))
		return -1;
	rc = py_request_resolve(c, q, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = enqueue(c, stream, q, &r, order));
		rc = py_client_check(c, rc);
		resolved_deinit(&r);
	}
	py_client_unlock(c);
	return rc;
}

/* Enqueues a transform in the stream's context. Caller holds the lock and not the GIL. */
static int enqueue_transform(struct py_client *c, const struct cuda_stream *stream,
                             const struct tma_transform *transform)
{
	void *before = cuda_switch(stream->context);
	int rc = tma_enqueue(c->client, transform, stream->handle);

	cuda_switch(before);
	return rc;
}

int stream_launch(struct py_client *c, const struct cuda_stream *stream,
                  const struct tma_transform *transform)
{
	int rc;

	if (!enter(c, stream)) {
		PyErr_Clear();
		return -1;
	}
	CLIENT_CALL(c, rc = enqueue_transform(c, stream, transform));
	py_client_unlock(c);
	return rc < 0 ? -1 : 0;
}

/* ---- Waiting ------------------------------------------------------------------------------------------ */

/* Waits for a stream or, with is_all, for all work of its context, and sets *ret to what the client's
 * requests have counted. Caller holds the lock and not the GIL. */
static int await(struct py_client *c, const struct cuda_stream *stream, bool is_all, struct tma_enqueued *ret)
{
	void *before = cuda_switch(stream->context);
	const bool is_done = !is_all || cuda_synchronize();
	/* If the context has failed, this call returns the reason. */
	int rc = tma_enqueued(c->client, stream->handle, ret);

	cuda_switch(before);
	return rc == 0 && !is_done ? TMA_DEVICE : rc;
}

/* Waits as await does and adds up the counts. Caller holds the lock. Returns 0, or -1 if it fails;
 * py_client_unlock then sets the exception. */
static int await_one(struct py_client *c, const struct cuda_stream *stream, bool is_all)
{
	struct tma_enqueued counts = { 0 };
	int rc;

	CLIENT_CALL(c, rc = await(c, stream, is_all, &counts));
	c->launched->changed += counts.changed;
	return py_client_check(c, rc);
}

static int await_all(struct py_client *c)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < c->launched->n; i++)
		rc = await_one(c, &(struct cuda_stream){ .context = c->launched->contexts[i] }, true);
	return rc;
}

/* Raises an error if exact casts have changed values that no call has reported. Caller holds the lock.
 * Returns 0, or -1 with an exception. */
static int tell(struct py_client *c)
{
	const uint64_t changed = c->launched->changed;

	c->launched->changed = 0;
	return changed == 0
	           ? 0
	           : raise_status(TMA_OUT_OF_RANGE,
	                          "cast: exact, but %" PRIu64 " values that moves in streams have cast "
	                          "were not values of the result's type; the results have the nearest",
	                          changed);
}

int launches_wait(struct py_client *c, const struct cuda_stream *stream)
{
	int rc = 0;

	if (!py_client_enter(c))
		return -1;
	if (c->launched) {
		rc = stream ? await_one(c, stream, false) : await_all(c);
		if (rc == 0)
			rc = tell(c);
	}
	py_client_unlock(c);
	return rc;
}

/* ---- With memory of the host -------------------------------------------------------------------------- */

/* Runs a resolved request to its end in the stream's context. Caller holds the lock and not the GIL. */
static int run_in_context(struct py_client *c, const struct cuda_stream *stream, const struct py_request *q,
                          struct resolved *r, const struct tma_order *order)
{
	void *before = cuda_switch(stream->context);
	int rc = resolved_run(c, q, r, order);

	cuda_switch(before);
	return rc;
}

int launch_and_wait(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
                    const struct tma_order *order)
{
	struct resolved r;
	int rc;

	if (!enter(c, stream))
		return -1;
	rc = await_one(c, stream, false);
	if (rc == 0)
		rc = py_request_resolve(c, q, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = run_in_context(c, stream, q, &r, order));
		rc = py_client_check(c, rc);
		resolved_deinit(&r);
	}
	py_client_unlock(c);
	return rc;
}
