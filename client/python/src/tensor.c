/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the type Tensor, a view of memory that another object has, and its attributes and buffer.
 * tensor_make.c makes Tensors. */
#include "core.h"

/* ---- Attributes -------------------------------------------------------------------------------------- */

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
	text = t->data ? PyUnicode_FromFormat("<tmaclient.Tensor %s %S at %p%s>", tma_dtype_name(t->dtype),
	                                      shape, t->data, py_tensor_is_host(t) ? "" : ", device memory")
	               : PyUnicode_FromFormat("<tmaclient.Tensor %s %S, without memory>",
	                                      tma_dtype_name(t->dtype), shape);
	Py_DECREF(shape);
	return text;
}

/* ---- Its own buffer -------------------------------------------------------------------------------- */

/* Formats of the struct module. A type without one of its own gets that of the unsigned integer of its
 * size. */
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
	/* The stride of a dimension of extent 1 may be any number. In bytes it may overflow, so the product
	 * is computed without a sign. */
	for (int d = 0; d < t->rank; d++) {
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
	{ "exchanged", py_tensor_exchanged, METH_O | METH_STATIC,
	  "exchanged(object)\n--\n\nA view by DLPack's table of C functions; None: the object has none, or is more than its "
	  "elements." },
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
