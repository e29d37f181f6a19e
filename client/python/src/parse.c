/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers from the arguments of calls. */
#include "core.h"

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

bool parse_axes(PyObject *axes, int rank, int *ret)
{
	const bool is_list = PyList_Check(axes);
	uint32_t seen = 0;

	if ((!is_list && !PyTuple_Check(axes)) || (is_list ? PyList_Size(axes) : PyTuple_Size(axes)) != rank)
		return false;
	for (int d = 0; d < rank; d++) {
		PyObject *axis = is_list ? PyList_GetItem(axes, d) : PyTuple_GetItem(axes, d);
		int is_too_large = 0;
		long n =
		    axis && PyLong_CheckExact(axis) ? PyLong_AsLongAndOverflow(axis, &is_too_large) : rank;

		if (!axis)
			PyErr_Clear(); /* Another thread has shortened the list. */
		if (n < 0)
			n += rank;
		if (is_too_large || n < 0 || n >= rank || seen & 1u << n)
			return false;
		seen |= 1u << n;
		ret[d] = (int)n;
	}
	return true;
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
