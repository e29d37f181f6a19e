/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tensors of objects that have __cuda_array_interface__, version 3
 * (numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html). */
#include "core.h"

#include <string.h>

/* Reads a type string such as "<f4": byte order, kind and bytes. Returns 0, or -1 with an exception. */
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
	PyErr_Format(PyExc_TypeError,
	             "__cuda_array_interface__: elements of type %s: %s; view them as integers of their "
	             "size to move their bytes",
	             text, *text == '>' ? "their byte order is not this machine's" : "tmad has no such type");
	return -1;
}

static PyObject *entry_of(PyObject *dict, const char *name)
{
	PyObject *value = PyDict_GetItemString(dict, name);

	if (!value)
		PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ has no entry '%s'", name);
	return value;
}

/* Reads a tuple or list of integers. Returns 0, or -1 with an exception, also if object is NULL, for which an
 * exception must be set already. */
static int take_sizes(PyObject *object, const char *name, int64_t *ret, int *ret_n)
{
	if (!object)
		return -1;
	if (!PyTuple_Check(object) && !PyList_Check(object)) {
		PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: %s is %R, no tuple of integers",
		             name, object);
		return -1;
	}
	return parse_sizes(object, name, ret, ret_n);
}

/* Reads the strides, which are in bytes. NULL or None: C order. */
static int take_strides(struct py_tensor *t, PyObject *strides)
{
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);
	int64_t bytes[TMA_MAX_RANK];
	int n = 0;

	py_tensor_set_dense(t);
	if (!strides || strides == Py_None)
		return 0;
	if (take_sizes(strides, "strides", bytes, &n) < 0)
		return -1;
	if (n != t->rank) {
		PyErr_SetString(PyExc_ValueError,
		                "__cuda_array_interface__: strides and shape differ in length");
		return -1;
	}
	for (int d = 0; d < n; d++) {
		if (bytes[d] % size && t->shape[d] > 1) {
			PyErr_Format(
			    PyExc_ValueError,
			    "__cuda_array_interface__: stride %d is %lld bytes, no multiple of the %lld of an "
			    "element; move a copy",
			    d, (long long)bytes[d], (long long)size);
			return -1;
		}
		t->strides[d] = bytes[d] / size;
	}
	return 0;
}

/* Reads a pair (address, whether the memory is read-only). Returns 0, or -1 with an exception, also if data
 * is NULL, for which an exception must be set already. */
static int take_data(struct py_tensor *t, PyObject *data)
{
	uint64_t address;
	int is_readonly, device;

	if (!data)
		return -1;
	if (!PyTuple_Check(data) || PyTuple_Size(data) != 2) {
		PyErr_Format(PyExc_TypeError,
		             "__cuda_array_interface__: data is %R, no pair of an address and a flag", data);
		return -1;
	}
	is_readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1));
	if (is_readonly < 0 || !parse_u64(PyTuple_GetItem(data, 0), &address))
		return -1;
	t->data = (char *)(uintptr_t)address;
	t->is_readonly = is_readonly;
	device = address ? cuda_device_of(address) : -1; /* the interface does not name the device */
	if (device >= 0)
		t->device_id = device;
	return 0;
}

static int take(struct py_tensor *t, PyObject *dict)
{
	PyObject *type, *stream, *mask;
	const char *text = NULL;

	if (!PyDict_Check(dict)) {
		PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ is no dict");
		return -1;
	}
	type = entry_of(dict, "typestr");
	if (type && !PyUnicode_Check(type))
		PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: typestr is %R, no string", type);
	else if (type)
		text = PyUnicode_AsUTF8AndSize(type, NULL);
	if (!text || parse_type(text, &t->dtype) < 0 ||
	    take_sizes(entry_of(dict, "shape"), "shape", t->shape, &t->rank) < 0 ||
	    take_strides(t, PyDict_GetItemString(dict, "strides")) < 0 ||
	    take_data(t, entry_of(dict, "data")) < 0 || py_tensor_check(t) < 0)
		return -1;
	mask = PyDict_GetItemString(dict, "mask");
	if (mask && mask != Py_None) {
		PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__: tmad takes no array with a mask");
		return -1;
	}
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
