/* SPDX-License-Identifier: Apache-2.0 */
/* The type Tensor: a view of memory that another object has, by whichever protocol that object speaks. */
#include "core.h"

#include <string.h>

struct py_tensor *py_tensor_alloc(void)
{
	struct py_tensor *t = (struct py_tensor *)PyType_GenericAlloc(core.tensor_type, 0);

	if (t) {
		t->device_type = DEVICE_CPU;
		t->stream = -1;
	}
	return t;
}

int64_t py_tensor_count(const struct py_tensor *t)
{
	int64_t count = 1;

	for (int d = 0; d < t->rank; d++)
		if (t->shape[d] == 0)
			return 0;
	for (int d = 0; d < t->rank; d++)
		count *= t->shape[d];
	return count;
}

void py_tensor_set_dense(struct py_tensor *t)
{
	int64_t step = 1;

	for (int d = t->rank - 1; d >= 0; d--) {
		t->strides[d] = step;
		if (__builtin_mul_overflow(step, t->shape[d] ? t->shape[d] : 1, &step))
			step = 0; /* py_tensor_check refuses it, unless there is no element */
	}
}

/* In elements, from element [0, ..., 0]; false: they cannot be counted. */
static bool find_reach(const struct py_tensor *t, int64_t *ret_low, int64_t *ret_high)
{
	int64_t low = 0, high = 0, count = 1, bytes;
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);

	for (int d = 0; d < t->rank; d++) {
		int64_t reach;

		if (__builtin_mul_overflow(count, t->shape[d], &count) ||
		    __builtin_mul_overflow(t->shape[d] - 1, t->strides[d], &reach) ||
		    __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
			return false;
	}
	*ret_low = low;
	*ret_high = high;
	return !__builtin_mul_overflow(count, size, &bytes) && !__builtin_mul_overflow(low, size, &bytes) &&
	       !__builtin_sub_overflow(high, low, &bytes) && !__builtin_add_overflow(bytes, 1, &bytes) &&
	       !__builtin_mul_overflow(bytes, size, &bytes);
}

static int check(const struct py_tensor *t, bool has_memory)
{
	const uintptr_t data = (uintptr_t)t->data;
	int64_t low, high;
	bool is_empty = false;

	for (int d = 0; d < t->rank; d++) {
		if (t->shape[d] < 0) {
			PyErr_Format(PyExc_ValueError, "extent %d is negative: %lld", d,
			             (long long)t->shape[d]);
			return -1;
		}
		is_empty = is_empty || t->shape[d] == 0;
	}
	if (is_empty)
		return 0;
	if (!find_reach(t, &low, &high)) {
		PyErr_SetString(PyExc_ValueError, "the array has more bytes than can be counted");
		return -1;
	}
	if (has_memory && !t->data) {
		PyErr_SetString(PyExc_ValueError, "the array has elements but no memory: its address is 0");
		return -1;
	}
	low *= (int64_t)tma_dtype_size(t->dtype);
	high = (high + 1) * (int64_t)tma_dtype_size(t->dtype);
	if (has_memory && (data < (uint64_t)-low || data + (uint64_t)high < data)) {
		PyErr_SetString(PyExc_ValueError, "the array's addresses are not those of any memory");
		return -1;
	}
	return 0;
}

int py_tensor_check_sizes(const struct py_tensor *t)
{
	return check(t, false);
}

int py_tensor_check(const struct py_tensor *t)
{
	return check(t, true);
}

struct extent py_tensor_extent(const struct py_tensor *t)
{
	int64_t low = 0, high = 0;
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);

	if (py_tensor_count(t) == 0)
		return (struct extent){ .start = t->data };
	for (int d = 0; d < t->rank; d++) {
		int64_t reach = (t->shape[d] - 1) * t->strides[d];

		if (reach < 0)
			low += reach;
		else
			high += reach;
	}
	return (struct extent){ .start = t->data + low * size, .size = (uint64_t)((high - low + 1) * size) };
}

bool py_tensor_is_host(const struct py_tensor *t)
{
	return t->device_type == DEVICE_CPU || t->device_type == DEVICE_CUDA_HOST;
}

bool py_tensor_is_contiguous(const struct py_tensor *t)
{
	int64_t step = 1;
	bool is_dense = true;

	for (int d = t->rank - 1; d >= 0; d--) {
		if (t->shape[d] == 0)
			return true;
		if (t->shape[d] != 1 && t->strides[d] != step)
			is_dense = false;
		if (__builtin_mul_overflow(step, t->shape[d], &step))
			is_dense = false;
	}
	return is_dense;
}

struct py_tensor *py_tensor_get(PyObject *object)
{
	if (Py_TYPE(object) == core.tensor_type) {
		Py_INCREF(object);
		return (struct py_tensor *)object;
	}
	return py_tensor_of_buffer(object, -1);
}

/* ---- Making ---------------------------------------------------------------------------------------- */

/* With elements of another type of the same size; -1: as it is. */
static struct py_tensor *seen_as(struct py_tensor *t, int dtype)
{
	if (!t || dtype < 0)
		return t;
	if (tma_dtype_size((enum tma_dtype)dtype) == tma_dtype_size(t->dtype)) {
		t->dtype = (enum tma_dtype)dtype;
		return t;
	}
	PyErr_Format(PyExc_TypeError, "dtype: %s and %s differ in size",
	             tma_dtype_name((enum tma_dtype)dtype), tma_dtype_name(t->dtype));
	Py_DECREF((PyObject *)t);
	return NULL;
}

/* -1 with an exception that is more than that there is none. */
static int has_attribute(PyObject *object, const char *name)
{
	PyObject *value = PyObject_GetAttrString(object, name);

	Py_XDECREF(value);
	if (value)
		return 1;
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	PyErr_Clear();
	return 0;
}

/* After an exception: JAX's arrays of bfloat16, for one, and CuPy's arrays. The exception is cleared if it is
 * so. */
static bool has_buffer_in_name_only(PyObject *object)
{
	const char *other = PyErr_ExceptionMatches(PyExc_BufferError) ? "__dlpack__"
	                    : PyErr_ExceptionMatches(PyExc_TypeError) ? "__cuda_array_interface__"
	                                                              : NULL;
	PyObject *error, *value, *trace;

	if (!other)
		return false;
	PyErr_Fetch(&error, &value, &trace);
	if (has_attribute(object, other) <= 0) {
		PyErr_Restore(error, value, trace);
		return false;
	}
	Py_XDECREF(error);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	return true;
}

/* By the first protocol that the object has. */
static struct py_tensor *tensor_of(PyObject *object, int dtype, PyObject *stream)
{
	int has;

	if (Py_TYPE(object) == core.tensor_type && !py_tensor_is_host((struct py_tensor *)object))
		return seen_as(py_tensor_of_dlpack(object, stream), dtype);
	if (PyObject_CheckBuffer(object)) {
		struct py_tensor *t = py_tensor_of_buffer(object, dtype);

		if (t || !has_buffer_in_name_only(object))
			return t;
	}
	has = has_attribute(object, "__dlpack__");
	if (has != 0)
		return has < 0 ? NULL : seen_as(py_tensor_of_dlpack(object, stream), dtype);
	has = has_attribute(object, "__cuda_array_interface__");
	if (has != 0)
		return has < 0 ? NULL : seen_as(py_tensor_of_interface(object), dtype);
	PyErr_Format(PyExc_TypeError,
	             "%R is no array: it has no buffer, no __dlpack__ and no __cuda_array_interface__",
	             Py_TYPE(object));
	return NULL;
}

static PyObject *py_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "object", "dtype", "stream", NULL };
	PyObject *object, *stream = Py_None;
	const char *name = NULL;
	int dtype = -1;

	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|zO:Tensor", names, &object, &name, &stream))
		return NULL;
	if (name) {
		dtype = tma_dtype_parse(name);
		if (dtype < 0) {
			PyErr_Format(PyExc_TypeError, "dtype: tmad has no element type %s", name);
			return NULL;
		}
	}
	if (Py_TYPE(object) == core.tensor_type && dtype < 0) {
		Py_INCREF(object);
		return object;
	}
	return (PyObject *)tensor_of(object, dtype, stream);
}

void dlpack_delete(struct py_tensor *t);

static void py_tensor_dealloc(PyObject *self)
{
	struct py_tensor *t = (struct py_tensor *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (t->buffer) {
		PyBuffer_Release(t->buffer);
		PyMem_Free(t->buffer);
	}
	if (t->managed)
		dlpack_delete(t);
	Py_XDECREF(t->owner);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* Tensor.at(address, dtype, shape, strides, device, owner): memory that an object tells of by itself; strides
 * in elements, device as DLPack has it. Nothing checks it: it is for kinds of objects that the package knows.
 */
static PyObject *py_tensor_at(PyObject *type, PyObject *args)
{
	PyObject *shape, *strides, *owner;
	uint64_t address;
	int device_type, device_id, n = 0, dtype;
	struct py_tensor *t;
	const char *name;

	(void)type;
	if (!PyArg_ParseTuple(args, "O&sOO(ii)O:at", parse_u64, &address, &name, &shape, &strides,
	                      &device_type, &device_id, &owner))
		return NULL;
	dtype = tma_dtype_parse(name);
	if (dtype < 0) {
		PyErr_Format(PyExc_TypeError, "elements of %s: tmad has no such type", name);
		return NULL;
	}
	t = py_tensor_alloc();
	if (!t)
		return NULL;
	t->dtype = (enum tma_dtype)dtype;
	t->data = (char *)(uintptr_t)address;
	t->device_type = device_type;
	t->device_id = device_id;
	if (parse_sizes(shape, "shape", t->shape, &t->rank) < 0 ||
	    parse_sizes(strides, "strides", t->strides, &n) < 0)
		goto err;
	if (n != t->rank) {
		PyErr_SetString(PyExc_ValueError, "strides: one for each dimension");
		goto err;
	}
	if (py_tensor_check(t) < 0)
		goto err;
	Py_INCREF(owner);
	t->owner = owner;
	return (PyObject *)t;

err:
	Py_DECREF((PyObject *)t);
	return NULL;
}

/* ---- Parts ----------------------------------------------------------------------------------------- */

int parse_sizes(PyObject *object, const char *name, int64_t *ret, int *ret_n)
{
	PyObject *tuple = PySequence_Tuple(object);
	Py_ssize_t n;

	if (!tuple)
		return -1;
	n = PyTuple_Size(tuple);
	if (n > TMA_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "%s: %zd dimensions; tmad takes at most %d", name, n,
		             TMA_MAX_RANK);
		Py_DECREF(tuple);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		ret[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
		if (ret[i] == -1 && PyErr_Occurred()) {
			Py_DECREF(tuple);
			return -1;
		}
	}
	*ret_n = (int)n;
	Py_DECREF(tuple);
	return 0;
}

static PyObject *as_index(PyObject *object)
{
	if (!PyIndex_Check(object)) {
		PyErr_Format(PyExc_TypeError, "%R is no integer", object);
		return NULL;
	}
	return PyNumber_Index(object);
}

int parse_u64(PyObject *object, void *ret)
{
	PyObject *index = as_index(object);
	unsigned long long value;

	if (!index)
		return 0;
	value = PyLong_AsUnsignedLongLong(index);
	Py_DECREF(index);
	if (value == (unsigned long long)-1 && PyErr_Occurred())
		return 0;
	*(uint64_t *)ret = value;
	return 1;
}

int parse_u32(PyObject *object, void *ret)
{
	uint64_t value;

	if (!parse_u64(object, &value))
		return 0;
	if (value > UINT32_MAX) {
		PyErr_Format(PyExc_OverflowError, "%llu does not fit into 32 bits",
		             (unsigned long long)value);
		return 0;
	}
	*(uint32_t *)ret = (uint32_t)value;
	return 1;
}

/* Tensor.part(offset, shape, strides): a view of the same memory, from the element at offset on, in elements.
 * It has to lie within the whole one. */
static PyObject *py_tensor_part(PyObject *self, PyObject *args)
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

/* Tensor.viewed(dtype, shape): bytes as elements of a type, in C order. */
static PyObject *py_tensor_viewed(PyObject *self, PyObject *args)
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

/* Tensor.copy_from(source): source's elements into this tensor, of the same shape and element size. Host
 * memory. */
static PyObject *py_tensor_copy_from(PyObject *self, PyObject *arg)
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

/* Tensor.copy_blocks(source, axis, index, start, is_scatter): host memory. A gather copies block index[start
 * + i] of source to block i of this tensor, a scatter block i of source to block index[start + i] of this
 * one. Blocks are those along the axis. */
static PyObject *py_tensor_copy_blocks(PyObject *self, PyObject *args)
{
	struct py_tensor *dst = (struct py_tensor *)self, *src, *index;
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
	if (!py_tensor_is_host(index) || index->dtype != TMA_INT64 || index->rank != 1 ||
	    (index->strides[0] != 1 && index->shape[0] > 1) || start < 0 || start > index->shape[0] - count) {
		PyErr_SetString(PyExc_ValueError, "index: a run of int64 with an entry for each block");
		return NULL;
	}
	for (int64_t i = 0; i < count; i++) {
		int64_t at = ((const int64_t *)(void *)index->data)[start + i];

		if (at < 0 || at >= (is_scatter ? dst : src)->shape[axis]) {
			raise_status(TMA_OUT_OF_RANGE, "index: entry %lld is %lld, of %lld blocks",
			             start + (long long)i, (long long)at,
			             (long long)(is_scatter ? dst : src)->shape[axis]);
			return NULL;
		}
	}
	Py_BEGIN_ALLOW_THREADS copy_blocks(dst, src, axis, (const int64_t *)(void *)index->data + start,
	                                   count, is_scatter);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* ---- Attributes ------------------------------------------------------------------------------------ */

static PyObject *tuple_of(const int64_t *values, int n)
{
	PyObject *tuple = PyTuple_New(n);

	for (int i = 0; tuple && i < n; i++) {
		PyObject *value = PyLong_FromLongLong(values[i]);

		if (!value) {
			Py_DECREF(tuple);
			return NULL;
		}
		PyTuple_SetItem(tuple, i, value);
	}
	return tuple;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
	(void)unused;
	return tuple_of(((struct py_tensor *)self)->shape, ((struct py_tensor *)self)->rank);
}

static PyObject *get_strides(PyObject *self, void *unused)
{
	(void)unused;
	return tuple_of(((struct py_tensor *)self)->strides, ((struct py_tensor *)self)->rank);
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(tma_dtype_name(((struct py_tensor *)self)->dtype));
}

static PyObject *get_data(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((struct py_tensor *)self)->data);
}

static PyObject *get_itemsize(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromSize_t(tma_dtype_size(((struct py_tensor *)self)->dtype));
}

static PyObject *get_size(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromLongLong(py_tensor_count((struct py_tensor *)self));
}

static PyObject *get_nbytes(PyObject *self, void *unused)
{
	const struct py_tensor *t = (struct py_tensor *)self;

	(void)unused;
	return PyLong_FromLongLong(py_tensor_count(t) * (int64_t)tma_dtype_size(t->dtype));
}

static PyObject *get_ndim(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromLong(((struct py_tensor *)self)->rank);
}

static PyObject *get_readonly(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct py_tensor *)self)->is_readonly);
}

static PyObject *get_is_host(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(py_tensor_is_host((struct py_tensor *)self));
}

static PyObject *get_device(PyObject *self, void *unused)
{
	(void)unused;
	return py_tensor_dlpack_device(self, NULL);
}

static PyObject *get_stream(PyObject *self, void *unused)
{
	const struct py_tensor *t = (struct py_tensor *)self;

	(void)unused;
	if (t->stream < 0)
		Py_RETURN_NONE;
	return PyLong_FromLongLong(t->stream);
}

static PyObject *get_extent(PyObject *self, void *unused)
{
	struct extent e = py_tensor_extent((struct py_tensor *)self);

	(void)unused;
	return Py_BuildValue("KK", (unsigned long long)(uintptr_t)e.start, (unsigned long long)e.size);
}

static PyObject *py_tensor_repr(PyObject *self)
{
	const struct py_tensor *t = (struct py_tensor *)self;
	PyObject *shape = get_shape(self, NULL), *text;

	if (!shape)
		return NULL;
	text = PyUnicode_FromFormat("<tmaclient.Tensor %s %S at %p%s>", tma_dtype_name(t->dtype), shape,
	                            t->data, py_tensor_is_host(t) ? "" : ", device memory");
	Py_DECREF(shape);
	return text;
}

/* ---- Its own buffer -------------------------------------------------------------------------------- */

/* Of the struct module; NULL: a type that it does not have. */
static const char *const formats[] = {
	[TMA_BOOL] = "?",        [TMA_UINT8] = "B",         [TMA_INT8] = "b",    [TMA_UINT16] = "H",
	[TMA_INT16] = "h",       [TMA_UINT32] = "I",        [TMA_INT32] = "i",   [TMA_UINT64] = "Q",
	[TMA_INT64] = "q",       [TMA_FLOAT8_E4M3FN] = "B", [TMA_FLOAT16] = "e", [TMA_FLOAT8_E5M2] = "B",
	[TMA_BFLOAT16] = "H",    [TMA_FLOAT32] = "f",       [TMA_FLOAT64] = "d", [TMA_COMPLEX64] = "Zf",
	[TMA_COMPLEX128] = "Zd",
};

static bool is_fortran(const struct py_tensor *t)
{
	struct py_tensor reversed = { .rank = t->rank };

	for (int d = 0; d < t->rank; d++) {
		reversed.shape[d] = t->shape[t->rank - 1 - d];
		reversed.strides[d] = t->strides[t->rank - 1 - d];
	}
	return py_tensor_is_contiguous(&reversed);
}

static bool is_as_asked(const struct py_tensor *t, int flags)
{
	if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS)
		return py_tensor_is_contiguous(t);
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS)
		return is_fortran(t);
	if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS)
		return py_tensor_is_contiguous(t) || is_fortran(t);
	return true;
}

/* Types that the buffer protocol does not have are shown as unsigned integers of their size. */
static int py_tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct py_tensor *t = (struct py_tensor *)self;
	Py_ssize_t *sizes;

	view->obj = NULL;
	if (!py_tensor_is_host(t)) {
		PyErr_SetString(PyExc_BufferError, "device memory has no buffer");
		return -1;
	}
	if (t->is_readonly && (flags & PyBUF_WRITABLE)) {
		PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
		return -1;
	}
	if (!is_as_asked(t, flags)) {
		PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
		return -1;
	}
	sizes = PyMem_Malloc((size_t)(2 * t->rank + 1) * sizeof *sizes);
	if (!sizes) {
		PyErr_NoMemory();
		return -1;
	}
	view->buf = t->data;
	view->itemsize = (Py_ssize_t)tma_dtype_size(t->dtype);
	view->len = (Py_ssize_t)py_tensor_count(t) * view->itemsize;
	view->readonly = t->is_readonly;
	view->ndim = t->rank;
	for (int d = 0; d < t->rank; d++) { /* a stride without a neighbour may be any number */
		sizes[d] = (Py_ssize_t)t->shape[d];
		sizes[t->rank + d] = (Py_ssize_t)((size_t)t->strides[d] * (size_t)view->itemsize);
	}
	view->format = (flags & PyBUF_FORMAT) ? (char *)formats[t->dtype] : NULL;
	view->shape = (flags & PyBUF_ND) ? sizes : NULL;
	view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? sizes + t->rank : NULL;
	view->suboffsets = NULL;
	view->internal = sizes;
	Py_INCREF(self);
	view->obj = self;
	return 0;
}

static void py_tensor_releasebuffer(PyObject *self, Py_buffer *view)
{
	(void)self;
	PyMem_Free(view->internal);
}

/* ---- The type -------------------------------------------------------------------------------------- */

static PyGetSetDef py_tensor_getset[] = {
	{ "shape", get_shape, NULL, "Extents, outermost first.", NULL },
	{ "strides", get_strides, NULL, "Distances between neighbours along each dimension, in elements.",
	  NULL },
	{ "dtype", get_dtype, NULL, "Name of the element type, such as \"float32\".", NULL },
	{ "itemsize", get_itemsize, NULL, "Bytes of an element.", NULL },
	{ "ndim", get_ndim, NULL, "Number of dimensions.", NULL },
	{ "size", get_size, NULL, "Number of elements.", NULL },
	{ "nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL },
	{ "data", get_data, NULL, "Address of element [0, ..., 0].", NULL },
	{ "extent", get_extent, NULL,
	  "Address of the lowest byte, and bytes to the end of the highest element.", NULL },
	{ "readonly", get_readonly, NULL, "Whether the memory may only be read.", NULL },
	{ "is_host", get_is_host, NULL, "Whether it is host memory.", NULL },
	{ "device", get_device, NULL, "Type and number of the device, as DLPack has them.", NULL },
	{ "stream", get_stream, NULL, "The CUDA stream that __cuda_array_interface__ named, or None.", NULL },
	{ 0 },
};

static PyMethodDef py_tensor_methods[] = {
	{ "at", py_tensor_at, METH_VARARGS | METH_STATIC,
	  "at(address, dtype, shape, strides, device, owner)\n--\n\nMemory that an object tells of by itself." },
	{ "part", py_tensor_part, METH_VARARGS,
	  "part(offset, shape, strides)\n--\n\nA view of a part, which begins at element offset; all in elements." },
	{ "viewed", py_tensor_viewed, METH_VARARGS,
	  "viewed(dtype, shape)\n--\n\nContiguous bytes as elements of a type, in C order." },
	{ "copy_from", py_tensor_copy_from, METH_O,
	  "copy_from(source)\n--\n\nCopies a tensor of the same shape and element size into this one, in host memory." },
	{ "copy_blocks", py_tensor_copy_blocks, METH_VARARGS,
	  "copy_blocks(source, axis, index, start, is_scatter)\n--\n\nCopies the blocks that an index selects." },
	{ "__dlpack__", (PyCFunction)(void (*)(void))py_tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
	  "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nExports it as DLPack 1.1 has it." },
	{ "__dlpack_device__", py_tensor_dlpack_device, METH_NOARGS,
	  "__dlpack_device__()\n--\n\nType and number of the device." },
	{ 0 },
};

PyDoc_STRVAR(
    py_tensor_doc,
    "Tensor(object, dtype=None, stream=None)\n--\n\n"
    "A view of the memory of an object that has a buffer, __dlpack__ or __cuda_array_interface__. Nothing is\n"
    "copied. dtype names the element type of a buffer whose own type stands for another one of the same size,\n"
    "such as \"bfloat16\" of uint16; stream is passed to __dlpack__.");

static PyType_Slot py_tensor_slots[] = {
	{ Py_tp_doc, (void *)py_tensor_doc },
	{ Py_tp_new, py_tensor_new },
	{ Py_tp_dealloc, py_tensor_dealloc },
	{ Py_tp_repr, py_tensor_repr },
	{ Py_tp_getset, py_tensor_getset },
	{ Py_tp_methods, py_tensor_methods },
	{ Py_bf_getbuffer, py_tensor_getbuffer },
	{ Py_bf_releasebuffer, py_tensor_releasebuffer },
	{ 0 },
};

PyType_Spec py_tensor_spec = {
	.name = "tmaclient._core.Tensor",
	.basicsize = sizeof(struct py_tensor),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = py_tensor_slots,
};
