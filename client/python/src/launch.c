/* SPDX-License-Identifier: Apache-2.0 */
/* A client without a service launches requests into the program's CUDA streams, on the thread that calls. It
 * notes in which contexts, so that Client.synchronize can wait for them. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_CONTEXTS 64

struct launched {
	void *contexts[MOST_CONTEXTS]; /* in which something has been launched since they were waited for;
	                                  NULL: one that is the thread's */
	size_t n;
};

/* With the lock. */
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
	if (launched->n < MOST_CONTEXTS)
		launched->contexts[launched->n++] = of;
	return true;
}

/* Without the GIL. */
static int enqueue(struct py_client *c, const struct cuda_stream *stream, const struct py_request *q,
                   struct resolved *r, const struct tma_order *order)
{
	void *before = cuda_switch(stream->context);
	int rc = resolved_enqueue(c, q, r, order, stream->handle);

	cuda_switch(before);
	return rc;
}

int launch(struct py_client *c, const struct cuda_stream *stream, struct py_request *q,
           const struct tma_order *order, PyObject *token)
{
	struct resolved r;
	int rc;

	if (!py_client_enter(c))
		return -1;
	rc = py_request_resolve(c, q, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = enqueue(c, stream, q, &r, order));
		rc = py_client_check(c, rc);
		resolved_deinit(&r);
	}
	if (rc == 0 && (!note(c, stream->context) || (token && !py_client_add_ended(c, token)))) {
		PyErr_NoMemory();
		rc = -1;
	}
	py_client_unlock(c);
	return rc;
}

/* ---- Waiting ------------------------------------------------------------------------------------------ */

/* Without the GIL. */
static int wait_for(struct py_client *c, void *of, struct tma_enqueued *ret)
{
	void *before = cuda_switch(of);
	int rc = cuda_synchronize() ? tma_enqueued(c->client, NULL, ret) : TMA_DEVICE_LOST;

	cuda_switch(before);
	return rc;
}

/* With the lock. */
static int wait_for_all(struct py_client *c, uint64_t *ret_changed)
{
	struct launched *launched = c->launched;
	struct tma_enqueued counts = { 0 };
	int rc = 0;

	while (rc == 0 && launched && launched->n > 0) {
		CLIENT_CALL(c, rc = wait_for(c, launched->contexts[launched->n - 1], &counts));
		launched->n--;
		*ret_changed += counts.changed;
		rc = rc == TMA_DEVICE_LOST ? raise_status(rc, "the CUDA context has failed")
		                           : py_client_check(c, rc);
	}
	return rc;
}

int launches_wait(struct py_client *c)
{
	uint64_t changed = 0;
	int rc;

	if (!py_client_enter(c))
		return -1;
	rc = wait_for_all(c, &changed);
	if (rc == 0 && changed > 0)
		rc = raise_status(TMA_OUT_OF_RANGE,
		                  "cast: exact, but %" PRIu64
		                  " values that moves in streams have cast were not "
		                  "values of the result's type; the results have the nearest",
		                  changed);
	py_client_unlock(c);
	return rc;
}
