/* SPDX-License-Identifier: Apache-2.0 */
/* Implements Tensor's methods that make views of parts and copy between tensors. */
#include "core.h"

#include <string.h>

/* Tensor.part(offset, shape, strides) returns a view of the same memory whose element [0, ..., 0] is offset
 * elements after that of this tensor. Strides are in elements. The part has to lie within the tensor. */
PyObject *py_tensor_part(PyObject *self, PyObject *args)
{
	const struct py_tensor *whole = (struct py_tensor *)self;
	struct extent outer = py_tensor_extent(whole), inner;
	PyObject *shape, *strides;
	struct py_tensor *t;
	long long offset, bytes;
	uintptr_t data;
	int n = 0;

	if (!PyArg_ParseTuple(args, "LOO:part", &offset, &shape, &strides))
		return NULL;
	t = py_tensor_alloc();
	if (!t)
		return NULL;
	if (parse_sizes(shape, "shape", t->shape, &t->rank) < 0 ||
	    parse_sizes(strides, "strides", t->strides, &n) < 0)
		goto err;
	if (n != t->rank) {
		PyErr_Format(PyExc_ValueError, "strides: %d of them for %d dimensions", n, t->rank);
		goto err;
	}
	t->dtype = whole->dtype;
	t->device_type = whole->device_type;
	t->device_id = whole->device_id;
	t->is_readonly = whole->is_readonly;
	t->stream = whole->stream;
	if (py_tensor_check_sizes(t) < 0)
		goto err;
	t->data = whole->data;
	if (py_tensor_count(t) > 0) {
		data = (uintptr_t)whole->data;
		if (__builtin_mul_overflow(offset, (long long)tma_dtype_size(t->dtype), &bytes) ||
		    __builtin_add_overflow(data, bytes, &data))
			goto err_outside;
		t->data = (char *)data;
		if (py_tensor_check(t) < 0)
			goto err;
		inner = py_tensor_extent(t);
		if (inner.start < outer.start || inner.start + inner.size > outer.start + outer.size)
			goto err_outside;
	}
	Py_INCREF(self);
	t->owner = self;
	return (PyObject *)t;

err_outside:
	PyErr_SetString(PyExc_ValueError, "the part lies outside of the tensor");
err:
	Py_DECREF(t);
	return NULL;
}

/* Tensor.viewed(dtype, shape) returns a view of a tensor of bytes as elements of a type, in C order. */
PyObject *py_tensor_viewed(PyObject *self, PyObject *args)
{
	const struct py_tensor *bytes = (struct py_tensor *)self;
	struct py_tensor *t;
	const char *name;
	PyObject *shape;
	int dtype;

	if (!PyArg_ParseTuple(args, "sO:viewed", &name, &shape))
		return NULL;
	dtype = tma_dtype_parse(name);
	t = dtype < 0 ? NULL : py_tensor_alloc();
	if (!t) {
		if (dtype < 0)
			PyErr_Format(PyExc_TypeError, "dtype: tmad has no element type %s", name);
		return NULL;
	}
	t->dtype = (enum tma_dtype)dtype;
	if (parse_sizes(shape, "shape", t->shape, &t->rank) < 0)
		goto err;
	py_tensor_set_dense(t);
	if (py_tensor_check_sizes(t) < 0)
		goto err;
	if (!py_tensor_is_contiguous(bytes) || tma_dtype_size(bytes->dtype) != 1 ||
	    py_tensor_count(bytes) != py_tensor_count(t) * (int64_t)tma_dtype_size(t->dtype)) {
		PyErr_SetString(PyExc_ValueError,
		                "viewed takes as many contiguous bytes as the elements have");
		goto err;
	}
	t->data = bytes->data;
	t->device_type = bytes->device_type;
	t->device_id = bytes->device_id;
	t->is_readonly = bytes->is_readonly;
	Py_INCREF(self);
	t->owner = self;
	return (PyObject *)t;

err:
	Py_DECREF((PyObject *)t);
	return NULL;
}

/* Tensor.copy_from(source) copies source's elements into this tensor, which has the same shape and element
 * size. Both are in host memory. */
PyObject *py_tensor_copy_from(PyObject *self, PyObject *arg)
{
	const struct py_tensor *dst = (struct py_tensor *)self;
	struct py_tensor *src = py_tensor_get(arg);

	if (!src)
		return NULL;
	if (!py_tensor_is_host(dst) || !py_tensor_is_host(src))
		PyErr_SetString(PyExc_TypeError, "copy_from takes host memory");
	else if (dst->is_readonly)
		PyErr_SetString(PyExc_TypeError, "the tensor is read-only");
	else if (dst->rank != src->rank ||
	         memcmp(dst->shape, src->shape, (size_t)dst->rank * sizeof *dst->shape) ||
	         tma_dtype_size(dst->dtype) != tma_dtype_size(src->dtype))
		PyErr_SetString(PyExc_ValueError,
		                "copy_from takes a tensor of the same shape and element size");
	else {
		Py_BEGIN_ALLOW_THREADS copy_tensor(dst, src);
		Py_END_ALLOW_THREADS Py_DECREF(src);
		Py_RETURN_NONE;
	}
	Py_DECREF(src);
	return NULL;
}

/* Tensor.copy_blocks(source, axis, index, start, is_scatter) copies blocks along the axis, in host memory. A
 * gather copies block index[start + i] of source to block i of this tensor, a scatter block i of source to
 * block index[start + i] of this tensor. */
PyObject *py_tensor_copy_blocks(PyObject *self, PyObject *args)
{
	struct py_tensor *dst = (struct py_tensor *)self, *src, *index;
	struct block_numbers numbers;
	PyObject *source, *list;
	long long start, count;
	int axis, is_scatter;

	if (!PyArg_ParseTuple(args, "O!iO!Lp:copy_blocks", core.tensor_type, &source, &axis, core.tensor_type,
	                      &list, &start, &is_scatter))
		return NULL;
	src = (struct py_tensor *)source;
	index = (struct py_tensor *)list;
	if (!py_tensor_is_host(dst) || !py_tensor_is_host(src) || dst->is_readonly || axis < 0 ||
	    axis >= dst->rank || dst->rank != src->rank ||
	    tma_dtype_size(dst->dtype) != tma_dtype_size(src->dtype)) {
		PyErr_SetString(PyExc_ValueError,
		                "copy_blocks takes tensors of one rank and element size, in host memory");
		return NULL;
	}
	for (int d = 0; d < dst->rank; d++)
		if (d != axis && dst->shape[d] != src->shape[d]) {
			PyErr_SetString(PyExc_ValueError, "copy_blocks takes blocks of one shape");
			return NULL;
		}
	count = is_scatter ? src->shape[axis] : dst->shape[axis];
	if (!py_tensor_is_host(index) || index->dtype != TMA_INT64 || index->rank != 1 || start < 0 ||
	    start > index->shape[0] - count) {
		PyErr_SetString(PyExc_ValueError, "index: a run of int64 with an entry for each block");
		return NULL;
	}
	numbers.step = index->strides[0] * (int64_t)sizeof(int64_t);
	numbers.first = index->data + start * numbers.step;
	for (int64_t i = 0; i < count; i++) {
		int64_t at = block_number(&numbers, i);

		if (at < 0 || at >= (is_scatter ? dst : src)->shape[axis]) {
			raise_status(TMA_OUT_OF_RANGE, "index: entry %lld is %lld, of %lld blocks",
			             start + (long long)i, (long long)at,
			             (long long)(is_scatter ? dst : src)->shape[axis]);
			return NULL;
		}
	}
	Py_BEGIN_ALLOW_THREADS copy_blocks(dst, src, axis, &numbers, count, is_scatter);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}
