/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tensors of objects that have a buffer, such as NumPy's arrays, memoryview, array.array and bytes. */
#include "core.h"

#include <string.h>

/* The struct module's characters stand for C types. Some, such as 'l', have 4 or 8 bytes: the item size
 * decides. */
int py_dtype_of_format(const char *format, Py_ssize_t size)
{
	static const struct {
		char character;
		int size;
		enum tma_dtype dtype;
	} types[] = {
		{ '?', 1, TMA_BOOL },    { 'B', 1, TMA_UINT8 },   { 'b', 1, TMA_INT8 },
		{ 'c', 1, TMA_UINT8 },   { 'H', 2, TMA_UINT16 },  { 'h', 2, TMA_INT16 },
		{ 'I', 4, TMA_UINT32 },  { 'i', 4, TMA_INT32 },   { 'L', 4, TMA_UINT32 },
		{ 'l', 4, TMA_INT32 },   { 'L', 8, TMA_UINT64 },  { 'l', 8, TMA_INT64 },
		{ 'Q', 8, TMA_UINT64 },  { 'q', 8, TMA_INT64 },   { 'N', 8, TMA_UINT64 },
		{ 'n', 8, TMA_INT64 },   { 'e', 2, TMA_FLOAT16 }, { 'f', 4, TMA_FLOAT32 },
		{ 'd', 8, TMA_FLOAT64 },
	};

	if (!format)
		return TMA_UINT8;
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	if (!strcmp(format, "Zf"))
		return TMA_COMPLEX64;
	if (!strcmp(format, "Zd"))
		return TMA_COMPLEX128;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (format[0] == types[i].character && !format[1] && size == types[i].size)
			return types[i].dtype;
	return -1;
}

/* Returns the reason why tmad has no type for a format, for an error message. */
static const char *refusal_of(const char *format)
{
	if (*format == '>' || *format == '!')
		return "their byte order is not this machine's";
	if (*format == 'T' || strchr(format, '{'))
		return "they are records, of which one field is moved at a time";
	if (strpbrk(format, "uw"))
		return "they are characters";
	return "tmad has no such type";
}

static int set_sizes(struct py_tensor *t, const Py_buffer *b)
{
	if (b->ndim > TMA_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "an array of %d dimensions; tmad takes at most %d", b->ndim,
		             TMA_MAX_RANK);
		return -1;
	}
	t->rank = b->ndim;
	for (int d = 0; d < b->ndim; d++)
		t->shape[d] = b->shape ? b->shape[d] : b->len / b->itemsize;
	py_tensor_set_dense(t);
	for (int d = 0; b->strides && d < b->ndim; d++) {
		t->strides[d] = b->strides[d] / b->itemsize;
		if (b->strides[d] % b->itemsize && t->shape[d] > 1) {
			PyErr_Format(
			    PyExc_BufferError,
			    "stride %d is %zd bytes, no multiple of the %zd of an element; move a copy", d,
			    b->strides[d], b->itemsize);
			return -1;
		}
	}
	return py_tensor_check(t);
}

struct py_tensor *py_tensor_of_buffer(PyObject *object, int dtype)
{
	struct py_tensor *t = py_tensor_alloc();
	Py_buffer *b;

	if (!t)
		return NULL;
	b = PyMem_Malloc(sizeof *b);
	if (!b) {
		PyErr_NoMemory();
		goto err;
	}
	if (PyObject_GetBuffer(object, b, PyBUF_FULL_RO) < 0) {
		PyMem_Free(b);
		goto err;
	}
	t->buffer = b;
	if (b->suboffsets) {
		PyErr_SetString(PyExc_BufferError, "an array of pointers to rows has no strides");
		goto err;
	}
	if (dtype < 0)
		dtype = py_dtype_of_format(b->format, b->itemsize);
	if (dtype < 0) {
		PyErr_Format(
		    PyExc_TypeError,
		    "elements of type '%s' (%zd bytes): %s; numpy.frombuffer(array, 'uint8') has their bytes",
		    b->format, b->itemsize, refusal_of(b->format));
		goto err;
	}
	t->dtype = (enum tma_dtype)dtype;
	if (b->itemsize != (Py_ssize_t)tma_dtype_size(t->dtype)) {
		PyErr_Format(PyExc_TypeError, "dtype: %s has %zu bytes, and the elements of the buffer %zd",
		             tma_dtype_name(t->dtype), tma_dtype_size(t->dtype), b->itemsize);
		goto err;
	}
	t->data = b->buf;
	if (set_sizes(t, b) < 0)
		goto err;
	t->is_readonly = b->readonly;
	return t;

err:
	Py_DECREF(t);
	return NULL;
}
