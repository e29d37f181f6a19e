/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses a call that writes a tensor two elements of which share bytes, or which shares bytes with another
 * tensor of the call. The service makes the same check for shared memory. Of other arrays it sees only copies
 * in shared memory. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include "proto/overlap.h"

/* A tensor that a call uses. check_all sorts an array of them by address. */
struct use {
	const struct py_tensor *tensor;
	PyObject *name;
	struct extent extent;
	bool is_written;
};

static void set_layout(struct tensor_layout *ret, const struct py_tensor *t)
{
	ret->dtype = (enum dtype)t->dtype;
	ret->rank = t->rank;
	memcpy(ret->shape, t->shape, sizeof t->shape);
	memcpy(ret->stride, t->strides, sizeof t->strides);
}

static int fail(const char *format, ...)
{
	PyObject *text;
	va_list args;

	va_start(args, format);
	text = PyUnicode_FromFormatV(format, args);
	va_end(args);
	if (text)
		raise_status(TMA_OVERLAP, "%s", PyUnicode_AsUTF8AndSize(text, NULL));
	Py_XDECREF(text);
	return -1;
}

static int check_itself(const struct use *use)
{
	const struct py_tensor *t = use->tensor;
	struct tensor_layout layout;
	PyObject *shape, *strides;
	enum overlap found;

	set_layout(&layout, t);
	found = overlap_self(&layout);
	if (found == OVERLAP_NONE)
		return 0;
	if (found == OVERLAP_UNKNOWN)
		return fail(
		    "%U: too complex to prove that no two elements share bytes; use strides that are multiples "
		    "of each other",
		    use->name);
	for (int d = 0; d < t->rank; d++)
		if (t->shape[d] > 1 && !t->strides[d])
			return fail(
			    "%U: dimension %d has stride 0, so its %lld elements overlap; only what is read may "
			    "repeat",
			    use->name, d, (long long)t->shape[d]);
	shape = PyObject_GetAttrString((PyObject *)t, "shape");
	strides = shape ? PyObject_GetAttrString((PyObject *)t, "strides") : NULL;
	if (strides)
		fail("%U: two elements share bytes: it has shape %R and strides %R", use->name, shape,
		     strides);
	Py_XDECREF(shape);
	Py_XDECREF(strides);
	return -1;
}

/* Checks that two tensors, at least one of which is written, share no bytes. Returns 0, or -1 with
 * OverlapError. */
static int check_pair(const struct use *a, const struct use *b)
{
	const struct use *written = a->is_written ? a : b, *other = a->is_written ? b : a;
	struct tensor_layout first, second;

	set_layout(&first, written->tensor);
	set_layout(&second, other->tensor);
	switch (overlap_between(&first, &second, other->tensor->data - written->tensor->data)) {
	case OVERLAP_NONE:
		return 0;
	case OVERLAP_SOME:
		return fail("%U: it shares bytes with %U; what is written shares none with anything else",
		            written->name, other->name);
	case OVERLAP_UNKNOWN:
		break;
	}
	return fail(
	    "%U: too complex to prove that it shares no byte with %U; use strides that are multiples of each "
	    "other, or separate memory",
	    written->name, other->name);
}

static int compare(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	return (x->extent.start > y->extent.start) - (x->extent.start < y->extent.start);
}

/* Checks all tensors. Sorts uses by address, and compares each tensor only with the earlier ones that reach
 * beyond its start, which are few if the arrays lie apart. Returns 0, or -1 with an exception. */
static int check_all(struct use *uses, size_t n)
{
	const struct use **open = calloc(n ? n : 1, sizeof *open);
	size_t n_open = 0;
	int rc = 0;

	if (!open) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; rc == 0 && i < n; i++)
		if (uses[i].is_written)
			rc = check_itself(&uses[i]);
	qsort(uses, n, sizeof *uses, compare);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		size_t kept = 0;

		for (size_t j = 0; rc == 0 && j < n_open; j++) {
			if (open[j]->extent.start + open[j]->extent.size <= uses[i].extent.start)
				continue;
			if (open[j]->is_written || uses[i].is_written)
				rc = check_pair(open[j], &uses[i]);
			open[kept++] = open[j];
		}
		n_open = kept;
		open[n_open++] = &uses[i];
	}
	free(open);
	return rc;
}

/* Appends the tensors of a list of pairs (name, tensor) to uses, except those without elements. Returns 0, or
 * -1 with an exception. */
static int take(PyObject *pairs, bool is_written, struct use *uses, size_t *n)
{
	for (Py_ssize_t i = 0; i < PyList_Size(pairs); i++) {
		struct use use = { .is_written = is_written };

		if (!PyArg_ParseTuple(PyList_GetItem(pairs, i), "UO!:check_apart", &use.name,
		                      core.tensor_type, &use.tensor))
			return -1;
		use.extent = py_tensor_extent(use.tensor);
		if (use.extent.size)
			uses[(*n)++] = use;
	}
	return 0;
}

/* check_apart(written, read) takes two lists of pairs (name, tensor). It raises OverlapError if two elements
 * of a written tensor share bytes, or a written tensor shares bytes with another tensor. */
PyObject *check_apart(PyObject *self, PyObject *args)
{
	PyObject *written, *read;
	struct use *uses;
	size_t n = 0;
	int rc;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!O!:check_apart", &PyList_Type, &written, &PyList_Type, &read))
		return NULL;
	uses = calloc((size_t)(PyList_Size(written) + PyList_Size(read)) + 1, sizeof *uses);
	if (!uses)
		return PyErr_NoMemory();
	rc = take(written, true, uses, &n);
	if (rc == 0)
		rc = take(read, false, uses, &n);
	if (rc == 0)
		rc = check_all(uses, n);
	free(uses);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}
