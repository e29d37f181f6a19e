/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of objects that have __cuda_array_interface__, version 3
 * (numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html). */
#include "core.h"

#include <string.h>

/* A type string such as "<f4": byte order, kind and bytes. */
static int parse_type(const char *text, enum tma_dtype *ret)
{
	static const struct {
		const char *name;
		enum tma_dtype dtype;
	} types[] = {
		{ "b1", TMA_BOOL },      { "u1", TMA_UINT8 },       { "i1", TMA_INT8 },
		{ "u2", TMA_UINT16 },    { "i2", TMA_INT16 },       { "u4", TMA_UINT32 },
		{ "i4", TMA_INT32 },     { "u8", TMA_UINT64 },      { "i8", TMA_INT64 },
		{ "f2", TMA_FLOAT16 },   { "f4", TMA_FLOAT32 },     { "f8", TMA_FLOAT64 },
		{ "c8", TMA_COMPLEX64 }, { "c16", TMA_COMPLEX128 },
	};

	if (*text == '<' || *text == '|')
		for (size_t i = 0; i < sizeof types / sizeof *types; i++)
			if (!strcmp(text + 1, types[i].name)) {
				*ret = types[i].dtype;
				return 0;
			}
	PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: elements of type %s: tmad has no such type",
	             text);
	return -1;
}

static PyObject *entry_of(PyObject *dict, const char *name)
{
	PyObject *value = PyDict_GetItemString(dict, name);

	if (!value)
		PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ has no entry '%s'", name);
	return value;
}

static int take_shape(struct py_tensor *t, PyObject *shape)
{
	int64_t step = 1;
	Py_ssize_t n;

	if (!shape)
		return -1;
	n = PyTuple_Size(shape);
	if (n < 0)
		return -1;
	if (n > TMA_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "an array of %zd dimensions; tmad takes at most %d", n,
		             TMA_MAX_RANK);
		return -1;
	}
	t->rank = (int)n;
	for (int d = t->rank - 1; d >= 0; d--) {
		t->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
		if (t->shape[d] < 0) {
			if (!PyErr_Occurred())
				PyErr_Format(PyExc_ValueError,
				             "__cuda_array_interface__: extent %d is negative", d);
			return -1;
		}
		t->strides[d] = step;
		step *= t->shape[d];
	}
	return 0;
}

/* In bytes; None or missing: C order. */
static int take_strides(struct py_tensor *t, PyObject *strides)
{
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);

	if (!strides || strides == Py_None)
		return 0;
	if (PyTuple_Size(strides) != t->rank) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError,
			                "__cuda_array_interface__: strides and shape differ in length");
		return -1;
	}
	for (int d = 0; d < t->rank; d++) {
		long long bytes = PyLong_AsLongLong(PyTuple_GetItem(strides, d));

		if (bytes == -1 && PyErr_Occurred())
			return -1;
		if (bytes % size && t->shape[d] > 1) {
			PyErr_Format(
			    PyExc_ValueError,
			    "__cuda_array_interface__: stride %d is %lld bytes, which elements of %lld bytes do not "
			    "divide",
			    d, bytes, (long long)size);
			return -1;
		}
		t->strides[d] = bytes / size;
	}
	return 0;
}

static int take_data(struct py_tensor *t, PyObject *data)
{
	unsigned long long address;
	int is_readonly;

	if (!data || !PyArg_ParseTuple(data, "Kp:data", &address, &is_readonly))
		return -1;
	t->data = (char *)(uintptr_t)address;
	t->is_readonly = is_readonly;
	return 0;
}

static int take(struct py_tensor *t, PyObject *dict)
{
	PyObject *type, *stream;
	const char *text;

	if (!PyDict_Check(dict)) {
		PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ is no dict");
		return -1;
	}
	type = entry_of(dict, "typestr");
	text = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
	if (!text || parse_type(text, &t->dtype) < 0 || take_shape(t, entry_of(dict, "shape")) < 0 ||
	    take_strides(t, PyDict_GetItemString(dict, "strides")) < 0 ||
	    take_data(t, entry_of(dict, "data")) < 0)
		return -1;
	stream = PyDict_GetItemString(dict, "stream");
	if (stream && stream != Py_None) {
		t->stream = (intptr_t)PyLong_AsLongLong(stream);
		if (t->stream <= 0) {
			if (!PyErr_Occurred())
				PyErr_SetString(
				    PyExc_ValueError,
				    "__cuda_array_interface__: stream 0 could be the legacy or the per-thread "
				    "default stream; they are 1 and 2");
			return -1;
		}
	}
	return 0;
}

struct py_tensor *py_tensor_of_interface(PyObject *object)
{
	PyObject *dict = PyObject_GetAttrString(object, "__cuda_array_interface__");
	struct py_tensor *t;

	if (!dict)
		return NULL;
	t = py_tensor_alloc();
	if (t) {
		t->device_type = DEVICE_CUDA;
		Py_INCREF(object);
		t->owner = object;
		if (take(t, dict) < 0) {
			Py_DECREF(t);
			t = NULL;
		}
	}
	Py_DECREF(dict);
	return t;
}
