/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tensors of objects by the first protocol that an object has, and frees them. */
#include "core.h"

struct py_tensor *py_tensor_get(PyObject *object)
{
	if (Py_TYPE(object) == core.tensor_type) {
		Py_INCREF(object);
		return (struct py_tensor *)object;
	}
	return py_tensor_of_buffer(object, -1);
}

/* Gives a tensor another element type of the same size; dtype == -1: leaves it as it is. Takes the reference
 * to t, which may be NULL, and returns it, or NULL with an exception. */
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

/* Returns 1 or 0, or -1 with an exception other than AttributeError. */
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

/* Tells, after an exception, whether the object has a buffer in name only and another protocol to use
 * instead, as JAX's arrays of bfloat16 and CuPy's arrays do. Clears the exception if so. */
static bool has_buffer_in_name_only(PyObject *object)
{
	const char *other = PyErr_ExceptionMatches(PyExc_BufferError) ? "__dlpack__"
	                    : PyErr_ExceptionMatches(PyExc_TypeError) ? "__cuda_array_interface__"
	                                                              : NULL;
	struct set_aside aside;

	if (!other)
		return false;
	exception_set_aside(&aside);
	if (has_attribute(object, other) <= 0) {
		exception_put_back(&aside);
		return false;
	}
	Py_XDECREF(aside.type);
	Py_XDECREF(aside.value);
	Py_XDECREF(aside.trace);
	return true;
}

/* Returns a new tensor by the first protocol that the object has, or NULL with an exception. */
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

PyObject *py_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
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

void py_tensor_dealloc(PyObject *self)
{
	struct py_tensor *t = (struct py_tensor *)self;
	PyTypeObject *type = Py_TYPE(self);
	struct set_aside aside;

	exception_set_aside(&aside);
	if (t->buffer) {
		PyBuffer_Release(t->buffer);
		PyMem_Free(t->buffer);
	}
	if (t->managed)
		dlpack_delete(t);
	Py_XDECREF(t->owner);
	exception_put_back(&aside);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* Tensor.at(address, dtype, shape, strides, device, owner) returns a view of memory at an address. owner is
 * the object that keeps the memory alive, strides are in elements, and device is a tuple (type, number) of
 * DLPack. Whether the memory exists is not checked: the method is for kinds of objects that the package
 * knows. */
PyObject *py_tensor_at(PyObject *type, PyObject *args)
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
		PyErr_Format(
		    PyExc_TypeError,
		    "elements of %s: tmad has no such type; to move their bytes, view them as integers of "
		    "their size, such as uint8",
		    name);
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
