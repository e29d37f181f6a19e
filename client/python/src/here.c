/* SPDX-License-Identifier: Apache-2.0 */
/* Implements transposed(), the shortest way to transpose a NumPy array in this process: it makes no Tensor,
 * Request or Client object. It returns None for arguments that it does not take; Client.transpose then moves
 * or refuses them. */
#include "core.h"

#include <string.h>

static pthread_key_t key; /* thread-specific value: a tma_client of "local:" */
/* numpy.empty and the string "dtype", which the first use makes. They are never freed. */
static PyObject *empty;
static PyObject *dtype_name;

static void free_client(void *client)
{
	tma_free(client);
}

int here_init(void)
{
	return pthread_key_create(&key, free_client);
}

/* Returns this thread's client, which stays connected until the thread ends, or NULL with an exception. */
static tma_client *client_here(void)
{
	tma_client *client = pthread_getspecific(key);
	int rc;

	if (client)
		return client;
	client = tma_new();
	rc = client ? tma_connect(client, "local:") : TMA_NO_MEMORY;
	if (rc == 0 && pthread_setspecific(key, client) != 0)
		rc = TMA_NO_MEMORY;
	if (rc < 0) {
		raise_status(rc, "%s", tma_last_error(client));
		tma_free(client);
		return NULL;
	}
	return client;
}

/* ---- Arguments --------------------------------------------------------------------------------------- */

struct transposing {
	Py_buffer src, dst;
	struct tma_tensor to, from;
	int64_t strides[TMA_MAX_RANK];
	int perm[TMA_MAX_RANK];
	int64_t span; /* bytes from the start of the lowest element to the end of the highest one */
};

/* Sets perm to the axes or, if axes is None, to the dimensions in reverse. Returns false, without an
 * exception, if axes is no permutation. */
static bool set_perm(struct transposing *t, PyObject *axes)
{
	if (axes != Py_None)
		return parse_axes(axes, t->from.rank, t->perm);
	for (int d = 0; d < t->from.rank; d++)
		t->perm[d] = t->from.rank - 1 - d;
	return true;
}

static bool set_source(struct transposing *t)
{
	const Py_buffer *b = &t->src;
	const int dtype = py_dtype_of_format(b->format, b->itemsize);
	int64_t reach;

	if (dtype < 0 || b->ndim > TMA_MAX_RANK || !b->strides || b->len == 0)
		return false;
	t->from = (struct tma_tensor){ .offset = (uint64_t)(uintptr_t)b->buf,
		                       .dtype = (enum tma_dtype)dtype,
		                       .rank = b->ndim,
		                       .strides = t->strides };
	t->span = b->itemsize;
	for (int d = 0; d < b->ndim; d++) {
		if (b->shape[d] > 1 && b->strides[d] % b->itemsize)
			return false;
		t->from.shape[d] = b->shape[d];
		t->strides[d] = b->strides[d] / b->itemsize;
		if (__builtin_mul_overflow(b->shape[d] - 1, b->strides[d], &reach) ||
		    __builtin_add_overflow(t->span, reach < 0 ? -reach : reach, &t->span))
			return false;
	}
	return true;
}

/* ---- The result -------------------------------------------------------------------------------------- */

static bool find_numpy(void)
{
	PyObject *numpy = empty ? NULL : PyImport_ImportModule("numpy");

	if (numpy) {
		empty = PyObject_GetAttrString(numpy, "empty");
		Py_DECREF(numpy);
	}
	if (!dtype_name)
		dtype_name = PyUnicode_InternFromString("dtype");
	return empty && dtype_name;
}

/* Returns a new array for the result, in C order, or NULL with an exception. */
static PyObject *make_result(struct transposing *t, PyObject *src)
{
	const int rank = t->from.rank;
	PyObject *shape, *dtype = NULL, *ret = NULL;

	if (!find_numpy())
		return NULL;
	shape = PyTuple_New(rank);
	t->to = (struct tma_tensor){ .dtype = t->from.dtype, .rank = rank };
	for (int d = 0; shape && d < rank; d++) {
		PyObject *n = PyLong_FromLongLong(t->from.shape[t->perm[d]]);

		t->to.shape[d] = t->from.shape[t->perm[d]];
		if (!n || PyTuple_SetItem(shape, d, n) < 0)
			Py_CLEAR(shape);
	}
	if (shape)
		dtype = PyObject_GetAttr(src, dtype_name);
	if (dtype)
		ret = PyObject_CallFunctionObjArgs(empty, shape, dtype, NULL);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	return ret;
}

/* Moves the array into the result. Returns 0, or -1 with an exception. */
static int run(struct transposing *t, PyObject *result)
{
	const struct tma_transform transform = { .dst = &t->to, .src = &t->from, .perm = t->perm };
	tma_client *client = client_here();
	int rc;

	if (!client || PyObject_GetBuffer(result, &t->dst, PyBUF_WRITABLE | PyBUF_ND) < 0)
		return -1;
	t->to.offset = (uint64_t)(uintptr_t)t->dst.buf;
	if (t->span < KEEP_GIL_BYTES && t->src.len < KEEP_GIL_BYTES) {
		rc = tma_transform(client, &transform);
	} else {
		Py_BEGIN_ALLOW_THREADS rc = tma_transform(client, &transform);
		Py_END_ALLOW_THREADS
	}
	PyBuffer_Release(&t->dst);
	return rc < 0 ? raise_status(rc, "%s", tma_last_error(client)) : 0;
}

/* transposed(array, axes) returns np.transpose(array, axes) as a new array, or None. */
PyObject *here_transposed(PyObject *self, PyObject *args)
{
	struct transposing t;
	PyObject *src, *axes, *ret = NULL;

	(void)self;
	if (!PyArg_ParseTuple(args, "OO:transposed", &src, &axes))
		return NULL;
	if (!py_is_ndarray(src) || PyObject_GetBuffer(src, &t.src, PyBUF_RECORDS_RO) < 0) {
		PyErr_Clear();
		Py_RETURN_NONE;
	}
	if (!set_source(&t) || !set_perm(&t, axes)) {
		PyBuffer_Release(&t.src);
		Py_RETURN_NONE;
	}
	ret = make_result(&t, src);
	if (ret && run(&t, ret) < 0)
		Py_CLEAR(ret);
	PyBuffer_Release(&t.src);
	return ret;
}
