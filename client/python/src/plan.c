/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the type Plan, a transform that was checked once. A call with arrays in shared memory costs little
 * more than the library's own call. All other calls go to the method _run of the Python subclass, which moves
 * arrays by way of shared memory or puts the run into a stream. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static PyObject *py_plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *client, *request;
	struct py_plan *p;
	struct py_client *c;
	struct resolved r;
	int rc;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "O!O!:Plan", core.client_type, &client, core.request_type, &request))
		return NULL;
	if (((struct py_request *)request)->kind != REQUEST_TRANSFORM) {
		PyErr_SetString(PyExc_TypeError, "a plan is made of a transform");
		return NULL;
	}
	p = (struct py_plan *)PyType_GenericAlloc(type, 0);
	if (!p)
		return NULL;
	c = (struct py_client *)client;
	Py_INCREF(client);
	p->client = c;
	p->dst = ((struct py_request *)request)->dst;
	Py_INCREF((PyObject *)p->dst);
	p->src = ((struct py_request *)request)->src;
	Py_INCREF((PyObject *)p->src);
	p->scale = ((struct py_request *)request)->scale.tensor;
	Py_XINCREF((PyObject *)p->scale);
	p->bias = ((struct py_request *)request)->bias.tensor;
	Py_XINCREF((PyObject *)p->bias);
	p->results = ((struct py_request *)request)->results;
	Py_XINCREF((PyObject *)p->results.scale);
	Py_XINCREF((PyObject *)p->results.inverse);
	if (!py_client_enter(c))
		goto err;
	rc = py_request_resolve(NULL, (struct py_request *)request, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = tma_plan_prepare(c->client, &r.transform, &p->plan));
		resolved_deinit(&r);
		rc = py_client_check(c, rc);
	}
	py_client_unlock(c);
	if (rc == 0)
		return (PyObject *)p;
err:
	Py_DECREF(p);
	return NULL;
}

struct remains {
	struct py_client *client;
	tma_plan *plan;
};

static void release(void *arg)
{
	struct remains *remains = arg;

	if (remains->client->client)
		tma_plan_release(remains->plan);
	free(remains);
}

static void let_go(struct py_plan *p)
{
	struct remains *remains;

	if (!p->plan)
		return;
	remains = malloc(sizeof *remains);
	if (remains)
		*remains = (struct remains){ p->client, p->plan };
	p->plan = NULL;
	if (remains) /* if memory is exhausted, the plan stays until the client is closed */
		py_client_release(p->client, release, remains);
}

static PyObject *py_plan_release(PyObject *self, PyObject *unused)
{
	(void)unused;
	let_go((struct py_plan *)self);
	Py_RETURN_NONE;
}

static void py_plan_dealloc(PyObject *self)
{
	struct py_plan *p = (struct py_plan *)self;
	PyTypeObject *type = Py_TYPE(self);

	let_go(p);
	Py_XDECREF((PyObject *)p->dst);
	Py_XDECREF((PyObject *)p->src);
	Py_XDECREF((PyObject *)p->scale);
	Py_XDECREF((PyObject *)p->bias);
	Py_XDECREF((PyObject *)p->results.scale);
	Py_XDECREF((PyObject *)p->results.inverse);
	Py_XDECREF((PyObject *)p->client);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- Running --------------------------------------------------------------------------------------- */

int py_plan_check(const struct py_tensor *expected, const struct py_tensor *t, const char *name)
{
	bool is_same = t->dtype == expected->dtype && t->rank == expected->rank;
	PyObject *expected_strides, *strides;

	for (int d = 0; is_same && d < t->rank; d++)
		is_same = t->shape[d] == expected->shape[d] &&
		          (t->strides[d] == expected->strides[d] || t->shape[d] == 1);
	if (is_same || (py_tensor_count(t) == 0 && t->dtype == expected->dtype && t->rank == expected->rank &&
	                !memcmp(t->shape, expected->shape, (size_t)t->rank * sizeof *t->shape)))
		return 0;
	expected_strides = PyObject_GetAttrString((PyObject *)expected, "strides");
	strides = expected_strides ? PyObject_GetAttrString((PyObject *)t, "strides") : NULL;
	if (strides)
		PyErr_Format(PyExc_ValueError,
		             "%s: the plan was made for %R, with strides %R, not for %R, with strides %R",
		             name, expected, expected_strides, t, strides);
	Py_XDECREF(expected_strides);
	Py_XDECREF(strides);
	return -1;
}

bool py_is_ndarray(PyObject *object)
{
	PyObject *numpy = core.array_type ? NULL : PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
	if (numpy) {
		PyObject *type = PyObject_GetAttrString(numpy, "ndarray");

		if (type && PyType_Check(type))
			core.array_type = (PyTypeObject *)type; /* never dropped */
		else
			Py_XDECREF(type);
		PyErr_Clear();
	}
	return Py_TYPE(object) == core.array_type;
}

/* Returns whether the buffer of an object is all that there is to it. Arrays of a subclass of numpy.ndarray
 * may have a mask or a unit besides. */
static bool is_plain(PyObject *object)
{
	return Py_TYPE(object) == core.tensor_type || PyMemoryView_Check(object) || py_is_ndarray(object);
}

static void release_buffer(Py_buffer *b)
{
	struct set_aside aside;

	exception_set_aside(&aside);
	PyBuffer_Release(b);
	exception_put_back(&aside);
}

/* An argument of a plan's call, described by its buffer alone, because to make a Tensor of it would cost too
 * much. */
struct side {
	Py_buffer buffer;
	struct extent extent;
};

/* Takes the buffer of an argument. Returns 1 if the argument can be moved as it is; the caller must then
 * release the buffer. Returns 0 if it is no plain array, gives no such buffer, is not laid out as the plan
 * expects, or has no element. Returns -1 with any exception that does not just mean that the object refuses
 * its buffer. */
static int lay(PyObject *object, const struct py_tensor *expected, bool writable, struct side *ret)
{
	const Py_ssize_t size = (Py_ssize_t)tma_dtype_size(expected->dtype);
	Py_buffer *b = &ret->buffer;
	int64_t low = 0, high = 0;
	bool is_same;

	if (!is_plain(object))
		return 0;
	if (PyObject_GetBuffer(object, b, writable ? PyBUF_FULL : PyBUF_FULL_RO) < 0) {
		if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError) &&
		    !PyErr_ExceptionMatches(PyExc_ValueError))
			return -1;
		PyErr_Clear();
		return 0;
	}
	is_same = b->ndim == expected->rank && b->itemsize == size && !b->suboffsets &&
	          (b->ndim == 0 || (b->shape && b->strides)) &&
	          py_dtype_of_format(b->format, size) == (int)expected->dtype;
	for (int d = 0; is_same && d < b->ndim; d++) {
		const int64_t reach = (expected->shape[d] - 1) * expected->strides[d] * size;

		is_same = b->shape[d] == expected->shape[d] && b->shape[d] > 0 &&
		          (b->shape[d] == 1 || b->strides[d] == expected->strides[d] * size);
		if (b->shape[d] > 1 && reach < 0)
			low += reach;
		else if (b->shape[d] > 1)
			high += reach;
	}
	if (!is_same) {
		release_buffer(b);
		return 0;
	}
	ret->extent = (struct extent){ (char *)b->buf + low, (uint64_t)(high - low + size) };
	return 1;
}

/* Sets *ret to the place of an argument's element [0, ..., 0]. Caller holds the lock. Returns false, without
 * an exception, if the memory is not shared. */
static bool find(struct py_client *c, const struct side *side, struct tma_place *ret)
{
	if (c->is_local) {
		*ret = (struct tma_place){ .offset = (uint64_t)(uintptr_t)side->buffer.buf };
		return true;
	}
	if (tma_region_find(c->client, side->extent.start, side->extent.size, ret) < 0)
		return false;
	ret->offset += (uint64_t)((char *)side->buffer.buf - side->extent.start);
	return true;
}

/* Runs the plan between two arguments. Returns 0, -1 with an exception, or 1 if it has to be run by
 * run_otherwise, because an argument is not in shared memory or requests in streams are pending. */
static int run_shared(struct py_plan *p, const struct side *dst, const struct side *src)
{
	struct tma_place dst_place, src_place;
	struct py_client *c = p->client;
	int rc = 1;

	if (!py_client_enter(c))
		return -1;
	if (!p->plan) {
		PyErr_SetString(PyExc_ValueError, "the plan was released");
		rc = -1;
	} else if (!streams_are_pending(c) && find(c, dst, &dst_place) && find(c, src, &src_place)) {
		CLIENT_CALL(c, rc = tma_plan_run(c->client, p->plan, dst_place, src_place, NULL));
		rc = py_client_check(c, rc);
	}
	py_client_unlock(c);
	return rc;
}

static PyObject *run_otherwise(PyObject *self, PyObject *args, PyObject *kwargs)
{
	PyObject *method = PyObject_GetAttrString(self, "_run"), *result;

	if (!method)
		return NULL;
	result = PyObject_Call(method, args, kwargs);
	Py_DECREF(method);
	return result;
}

static PyObject *py_plan_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_plan *p = (struct py_plan *)self;
	struct side dst, src;
	PyObject *out;
	int rc, fits;

	if (kwargs || PyTuple_Size(args) != 2 || p->scale || p->bias || p->results.scale ||
	    p->results.inverse)
		return run_otherwise(self, args, kwargs);
	out = PyTuple_GetItem(args, 1);
	fits = lay(PyTuple_GetItem(args, 0), p->src, false, &src);
	rc = fits < 0 ? -1 : 1;
	if (fits > 0) {
		fits = lay(out, p->dst, true, &dst);
		rc = fits < 0 ? -1 : 1;
		if (fits > 0) {
			rc = run_shared(p, &dst, &src);
			release_buffer(&dst.buffer);
		}
		release_buffer(&src.buffer);
	}
	if (rc < 0)
		return NULL;
	if (rc > 0)
		return run_otherwise(self, args, kwargs);
	Py_INCREF(out);
	return out;
}

static PyObject *get_dst(PyObject *self, void *unused)
{
	(void)unused;
	Py_INCREF((PyObject *)((struct py_plan *)self)->dst);
	return (PyObject *)((struct py_plan *)self)->dst;
}

static PyObject *get_src(PyObject *self, void *unused)
{
	(void)unused;
	Py_INCREF((PyObject *)((struct py_plan *)self)->src);
	return (PyObject *)((struct py_plan *)self)->src;
}

static PyObject *get_released(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(!((struct py_plan *)self)->plan);
}

static PyGetSetDef py_plan_getset[] = {
	{ "dst", get_dst, NULL, "The destination's layout.", NULL },
	{ "src", get_src, NULL, "The source's layout.", NULL },
	{ "released", get_released, NULL, "Whether it was given up.", NULL },
	{ 0 },
};

static PyMethodDef py_plan_methods[] = {
	{ "release", py_plan_release, METH_NOARGS,
	  "release()\n--\n\nGives the plan up; runs in flight finish." },
	{ 0 },
};

static PyType_Slot py_plan_slots[] = {
	{ Py_tp_doc, (void *)"A transform that was checked once, of a client." },
	{ Py_tp_new, py_plan_new },
	{ Py_tp_dealloc, py_plan_dealloc },
	{ Py_tp_call, py_plan_call },
	{ Py_tp_getset, py_plan_getset },
	{ Py_tp_methods, py_plan_methods },
	{ 0 },
};

PyType_Spec py_plan_spec = {
	.name = "tmaclient._core.Plan",
	.basicsize = sizeof(struct py_plan),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = py_plan_slots,
};
