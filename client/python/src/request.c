/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the type Request, which says what to move between tensors. resolve.c finds out later where these
 * are. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

struct py_request *py_request_alloc(enum py_request_kind kind)
{
	struct py_request *q = (struct py_request *)PyType_GenericAlloc(core.request_type, 0);

	if (q)
		q->kind = kind;
	return q;
}

static struct py_tensor *own(PyObject *object)
{
	Py_INCREF(object);
	return (struct py_tensor *)object;
}

static void py_request_dealloc(PyObject *self)
{
	struct py_request *q = (struct py_request *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_XDECREF((PyObject *)q->dst);
	Py_XDECREF((PyObject *)q->src);
	Py_XDECREF((PyObject *)q->scale.tensor);
	Py_XDECREF((PyObject *)q->bias.tensor);
	Py_XDECREF((PyObject *)q->results.scale);
	Py_XDECREF((PyObject *)q->results.inverse);
	Py_XDECREF((PyObject *)q->plan);
	Py_XDECREF((PyObject *)q->index);
	Py_XDECREF((PyObject *)q->all_dst);
	Py_XDECREF((PyObject *)q->all_src);
	Py_XDECREF(q->dst_layers);
	Py_XDECREF(q->src_layers);
	Py_XDECREF(q->further);
	Py_XDECREF(q->items);
	free(q->start);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- Parsing --------------------------------------------------------------------------------------- */

/* Returns 1 and sets *ret to the attribute (a new reference), 0 if the object has none, or -1 with an
 * exception. To read an attribute may run any code, during which a signal's handler may raise an
 * exception. */
static int get_attribute(PyObject *object, const char *name, PyObject **ret)
{
	*ret = PyObject_GetAttrString(object, name);
	if (*ret)
		return 1;
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	PyErr_Clear();
	return 0;
}

static int has_method(PyObject *object, const char *name)
{
	PyObject *value;
	int has = get_attribute(object, name, &value);

	Py_XDECREF(value);
	return has;
}

/* Returns 1 if the object is a complex number, 0 if not, or -1 with an exception. __complex__ alone does not
 * tell: NumPy's complex scalars have __float__ as well, which drops the imaginary part, so the dtype's kind
 * decides. */
static int is_complex(PyObject *object)
{
	PyObject *dtype, *kind = NULL;
	int is = has_method(object, "__complex__"), has;

	if (is > 0) {
		has = has_method(object, "__float__");
		is = has < 0 ? -1 : !has;
	}
	if (is != 0 || PyFloat_Check(object))
		return is;
	has = get_attribute(object, "dtype", &dtype);
	if (has > 0)
		has = get_attribute(dtype, "kind", &kind);
	if (has > 0 && PyUnicode_Check(kind))
		is = PyUnicode_CompareWithASCIIString(kind, "c") == 0;
	Py_XDECREF(dtype);
	Py_XDECREF(kind);
	return has < 0 ? -1 : is;
}

int number_parse(PyObject *object, const char *name, struct tma_number *ret)
{
	PyObject *index = NULL;
	int is;

	*ret = (struct tma_number){ 0 };
	if (PyIndex_Check(object))
		index = PyNumber_Index(object);
	if (!index && PyErr_Occurred()) { /* a scalar array has __index__ even if it is no integer */
		if (!PyErr_ExceptionMatches(PyExc_TypeError))
			return -1;
		PyErr_Clear();
	}
	if (index) {
		int overflow = 0;

		ret->i = PyLong_AsLongLongAndOverflow(index, &overflow);
		if (overflow > 0) {
			ret->kind = TMA_NUMBER_UINT;
			ret->i = 0;
			ret->u = PyLong_AsUnsignedLongLong(index);
		}
		Py_DECREF(index);
		if (overflow < 0 || (overflow > 0 && PyErr_Occurred())) {
			PyErr_Clear();
			PyErr_Format(PyExc_OverflowError, "%s: no element type has the number %S", name,
			             object);
			return -1;
		}
		return 0;
	}
	is = PyComplex_Check(object) ? 1 : is_complex(object);
	if (is < 0)
		return -1;
	if (is) {
		PyObject *args = PyTuple_New(1), *number = NULL;

		if (args) {
			Py_INCREF(object);
			PyTuple_SetItem(args, 0, object);
			number = PyObject_Call((PyObject *)&PyComplex_Type, args, NULL);
			Py_DECREF(args);
		}
		if (!number)
			return -1;
		ret->kind = TMA_NUMBER_COMPLEX;
		ret->re = PyComplex_RealAsDouble(number);
		ret->im = PyComplex_ImagAsDouble(number);
		Py_DECREF(number);
		return 0;
	}
	ret->kind = TMA_NUMBER_REAL;
	ret->re = PyFloat_AsDouble(object);
	if (ret->re != -1 || !PyErr_Occurred())
		return 0;
	if (PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError, "%s: %R is no number", name, object);
	}
	return -1;
}

/* Reads a sequence of n numbers, one for each dimension, from the argument of that name. Returns 0, or -1
 * with an exception. */
static int parse_numbers(PyObject *object, const char *name, int n, int64_t *ret)
{
	PyObject *tuple = PySequence_Tuple(object);
	int rc = -1;

	if (!tuple)
		return -1;
	if (PyTuple_Size(tuple) != n)
		PyErr_Format(PyExc_ValueError, "%s: %zd entries for %d dimensions", name, PyTuple_Size(tuple),
		             n);
	else
		for (int i = 0; i < n; i++) {
			ret[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
			if (ret[i] == -1 && PyErr_Occurred())
				goto out;
		}
	rc = PyErr_Occurred() ? -1 : 0;
out:
	Py_DECREF(tuple);
	return rc;
}

static int parse_perm(struct py_request *q, PyObject *perm)
{
	int64_t numbers[TMA_MAX_RANK];

	if (perm == Py_None)
		return 0;
	if (parse_numbers(perm, "permute", q->src->rank, numbers) < 0)
		return -1;
	for (int d = 0; d < q->src->rank; d++) {
		if (numbers[d] < 0 || numbers[d] >= q->src->rank) {
			PyErr_Format(PyExc_ValueError, "permute: %lld is no axis of %d",
			             (long long)numbers[d], q->src->rank);
			return -1;
		}
		q->perm[d] = (int)numbers[d];
	}
	q->has_perm = true;
	return 0;
}

static int parse_pads(struct py_request *q, PyObject *before, PyObject *after, const char *mode,
                      PyObject *value)
{
	int m;

	if (before == Py_None)
		return 0;
	if (parse_numbers(before, "pad", q->dst->rank, q->before) < 0 ||
	    parse_numbers(after, "pad", q->dst->rank, q->after) < 0 ||
	    number_parse(value, "value", &q->value) < 0)
		return -1;
	m = tma_pad_mode_parse(mode);
	if (m < 0) {
		PyErr_Format(PyExc_ValueError,
		             "mode: '%s'; tmad pads by constant, edge, reflect, symmetric and wrap", mode);
		return -1;
	}
	q->mode = (enum tma_pad_mode)m;
	q->has_pads = true;
	return 0;
}

static int parse_operand(PyObject *object, const char *name, struct py_operand *ret)
{
	if (object == Py_None)
		return 0;
	if (Py_TYPE(object) == core.tensor_type) {
		ret->tensor = own(object);
		return 0;
	}
	if (number_parse(object, name, &ret->number) < 0)
		return -1;
	if (ret->number.kind == TMA_NUMBER_COMPLEX) {
		PyErr_Format(PyExc_TypeError, "%s: %R is complex; it is a real number", name, object);
		return -1;
	}
	ret->is_number = true;
	return 0;
}

/* Reads the conversion. cast is NULL if there is none: dst and src then have the same element type, and scale
 * and bias are ignored. Returns 0, or -1 with an exception. */
static int parse_conversion(struct py_request *q, const char *cast, PyObject *scale, PyObject *bias)
{
	if (!cast)
		return 0;
	if (!strcmp(cast, "saturate")) {
		q->cast = TMA_CAST_SATURATE;
	} else if (!strcmp(cast, "exact")) {
		q->cast = TMA_CAST_EXACT;
	} else if (!strcmp(cast, "ieee")) {
		q->cast = TMA_CAST_IEEE;
	} else {
		PyErr_Format(PyExc_ValueError, "cast: '%s'; it is saturate, exact or ieee", cast);
		return -1;
	}
	q->is_conversion = true;
	return parse_operand(scale, "scale", &q->scale) < 0 ? -1 : parse_operand(bias, "bias", &q->bias);
}

static int parse_result(PyObject *object, const char *name, struct py_tensor **ret)
{
	if (object == Py_None)
		return 0;
	if (Py_TYPE(object) != core.tensor_type) {
		PyErr_Format(PyExc_TypeError, "%s: %R is no Tensor", name, object);
		return -1;
	}
	*ret = own(object);
	return 0;
}

/* Reads amax from a tuple (block, scale, inverse, power_of_two, least), or None. */
static int parse_amax(struct py_request *q, PyObject *amax)
{
	PyObject *block, *scale, *inverse;
	int is_power;

	if (amax == Py_None)
		return 0;
	if (!PyTuple_Check(amax)) {
		PyErr_Format(PyExc_TypeError, "amax: %R is no tuple", amax);
		return -1;
	}
	if (!q->is_conversion) {
		PyErr_SetString(PyExc_ValueError, "amax: only with a cast");
		return -1;
	}
	if (!PyArg_ParseTuple(amax, "OOOpd:amax", &block, &scale, &inverse, &is_power, &q->amax.least) ||
	    parse_numbers(block, "block", q->dst->rank, q->amax.block) < 0)
		return -1;
	q->amax.is = true;
	q->amax.power_of_two = is_power;
	return parse_result(scale, "amax.scale", &q->results.scale) < 0
	           ? -1
	           : parse_result(inverse, "amax.inverse", &q->results.inverse);
}

/* Checks a tuple of tensors and sets *ret to a new reference to it. None leaves *ret NULL. Returns 0, or -1
 * with an exception. */
static int parse_tensors(PyObject *tensors, const char *name, PyObject **ret)
{
	if (tensors == Py_None)
		return 0;
	if (!PyTuple_Check(tensors)) {
		PyErr_Format(PyExc_TypeError, "%s: %R is no tuple", name, tensors);
		return -1;
	}
	for (Py_ssize_t i = 0; i < PyTuple_Size(tensors); i++)
		if (Py_TYPE(PyTuple_GetItem(tensors, i)) != core.tensor_type) {
			PyErr_Format(PyExc_TypeError, "%s[%zd]: it is no Tensor", name, i);
			return -1;
		}
	Py_INCREF(tensors);
	*ret = tensors;
	return 0;
}

/* Request.transform(dst, src, permute, before, after, mode, value, cast=None, scale=None, bias=None,
 * amax=None, further=None) returns a request to move src into dst and into further destinations. */
static PyObject *make_transform(PyObject *type, PyObject *args)
{
	PyObject *dst, *src, *perm, *before, *after, *value, *scale = Py_None, *bias = Py_None;
	PyObject *amax = Py_None, *further = Py_None;
	const char *mode, *cast = NULL;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "O!O!OOOsO|zOOOO:transform", core.tensor_type, &dst, core.tensor_type,
	                      &src, &perm, &before, &after, &mode, &value, &cast, &scale, &bias, &amax,
	                      &further))
		return NULL;
	q = py_request_alloc(REQUEST_TRANSFORM);
	if (!q)
		return NULL;
	q->dst = own(dst);
	q->src = own(src);
	if (parse_perm(q, perm) < 0 || parse_pads(q, before, after, mode, value) < 0 ||
	    parse_conversion(q, cast, scale, bias) < 0 || parse_amax(q, amax) < 0 ||
	    parse_tensors(further, "further", &q->further) < 0) {
		Py_DECREF(q);
		return NULL;
	}
	return (PyObject *)q;
}

/* Reads the layers of a side from a tuple of tensors or from the number of bytes from layer to layer. */
static int parse_side(PyObject *layers, const char *name, PyObject **ret, int64_t *ret_step)
{
	if (!PyLong_Check(layers))
		return parse_tensors(layers, name, ret);
	*ret_step = PyLong_AsLongLong(layers);
	if (*ret_step >= 0)
		return 0;
	if (!PyErr_Occurred())
		PyErr_Format(PyExc_ValueError, "%s: %S bytes from layer to layer; they are not negative",
		             name, layers);
	return -1;
}

/* Reads the layers of both sides. At least one of them must be a tuple, whose length is the number of layers.
 * If both are None there are no layers. Returns 0, or -1 with an exception. */
static int parse_layers(struct py_request *q, PyObject *dst_layers, PyObject *src_layers)
{
	Py_ssize_t n[2];

	if (dst_layers == Py_None && src_layers == Py_None)
		return 0;
	if (parse_side(dst_layers, "dst_layers", &q->dst_layers, &q->dst_layer_step) < 0 ||
	    parse_side(src_layers, "src_layers", &q->src_layers, &q->src_layer_step) < 0)
		return -1;
	n[0] = q->dst_layers ? PyTuple_Size(q->dst_layers) : -1;
	n[1] = q->src_layers ? PyTuple_Size(q->src_layers) : n[0];
	n[0] = q->dst_layers ? n[0] : n[1];
	if (n[0] != n[1] || n[0] < 1 || n[0] > INT32_MAX) {
		PyErr_Format(PyExc_ValueError, "layers: %zd of dst and %zd of src", n[0], n[1]);
		return -1;
	}
	q->layers = (uint32_t)n[0];
	return 0;
}

/* Request.blocks(scatter, dst, src, permute, all_dst, all_src, index, is_index_shared, dst_limit, src_limit,
 * dst_step, src_step, cast=None, scale=None, bias=None, dst_layers=None, src_layers=None) returns a request
 * to move the blocks that an index selects. dst and src are the blocks at the lowest addresses of all_dst and
 * all_src. dst_layers and src_layers are each a tuple of tensors or the number of bytes from layer to layer.
 * struct py_request explains the other parameters. */
static PyObject *make_blocks(PyObject *type, PyObject *args)
{
	PyObject *dst, *src, *perm, *all_dst, *all_src, *index, *scale = Py_None, *bias = Py_None;
	PyObject *dst_layers = Py_None, *src_layers = Py_None;
	const char *cast = NULL;
	long long dst_limit, src_limit, dst_step, src_step;
	int is_scatter, is_shared;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "pO!O!OO!O!O!pLLLL|zOOOO:blocks", &is_scatter, core.tensor_type, &dst,
	                      core.tensor_type, &src, &perm, core.tensor_type, &all_dst, core.tensor_type,
	                      &all_src, core.tensor_type, &index, &is_shared, &dst_limit, &src_limit,
	                      &dst_step, &src_step, &cast, &scale, &bias, &dst_layers, &src_layers))
		return NULL;
	q = py_request_alloc(REQUEST_BLOCKS);
	if (!q)
		return NULL;
	q->dst = own(dst);
	q->src = own(src);
	q->all_dst = own(all_dst);
	q->all_src = own(all_src);
	q->index = own(index);
	q->is_scatter = is_scatter;
	q->is_index_shared = is_shared;
	q->dst_limit = dst_limit;
	q->src_limit = src_limit;
	q->dst_step = dst_step;
	q->src_step = src_step;
	if (parse_perm(q, perm) < 0 || parse_conversion(q, cast, scale, bias) < 0 ||
	    parse_layers(q, dst_layers, src_layers) < 0) {
		Py_DECREF((PyObject *)q);
		return NULL;
	}
	return (PyObject *)q;
}

/* Reads the scale or bias of a plan's run: a tensor if the plan was made with one (expected), otherwise
 * None. */
static int parse_plan_operand(PyObject *object, const char *name, const struct py_tensor *expected,
                              struct py_operand *ret)
{
	const bool is_tensor = Py_TYPE(object) == core.tensor_type;

	if (!expected && object == Py_None)
		return 0;
	if (!expected || !is_tensor) {
		PyErr_Format(PyExc_ValueError,
		             expected ? "%s: the plan was made for an array, and keeps no number"
		                      : "%s: the plan was made without one, or keeps its number",
		             name);
		return -1;
	}
	if (py_plan_check(expected, (struct py_tensor *)object, name) < 0)
		return -1;
	ret->tensor = own(object);
	return 0;
}

/* Reads a tensor that a plan's run writes beside dst: given if the plan writes one (expected), otherwise
 * None. */
static int parse_plan_result(PyObject *object, const char *name, const struct py_tensor *expected,
                             struct py_tensor **ret)
{
	if (!expected && object == Py_None)
		return 0;
	if (!expected || object == Py_None) {
		PyErr_Format(PyExc_ValueError,
		             expected ? "%s: the plan writes it, and was given no array"
		                      : "%s: the plan was made without it",
		             name);
		return -1;
	}
	return parse_result(object, name, ret) < 0 ? -1 : py_plan_check(expected, *ret, name);
}

/* Request.run_plan(plan, dst, src, scale=None, bias=None, amax_scale=None, amax_inverse=None) returns a
 * request to run a plan. */
static PyObject *make_run(PyObject *type, PyObject *args)
{
	PyObject *object, *dst, *src, *scale = Py_None, *bias = Py_None;
	PyObject *amax_scale = Py_None, *amax_inverse = Py_None;
	struct py_plan *plan;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "O!O!O!|OOOO:run_plan", core.plan_type, &object, core.tensor_type, &dst,
	                      core.tensor_type, &src, &scale, &bias, &amax_scale, &amax_inverse))
		return NULL;
	plan = (struct py_plan *)object;
	if (py_plan_check(plan->dst, (struct py_tensor *)dst, "out") < 0 ||
	    py_plan_check(plan->src, (struct py_tensor *)src, "src") < 0)
		return NULL;
	q = py_request_alloc(REQUEST_PLAN);
	if (!q)
		return NULL;
	Py_INCREF(object);
	q->plan = plan;
	q->dst = own(dst);
	q->src = own(src);
	if (parse_plan_operand(scale, "scale", plan->scale, &q->scale) < 0 ||
	    parse_plan_operand(bias, "bias", plan->bias, &q->bias) < 0 ||
	    parse_plan_result(amax_scale, "amax.scale", plan->results.scale, &q->results.scale) < 0 ||
	    parse_plan_result(amax_inverse, "amax.inverse", plan->results.inverse, &q->results.inverse) < 0) {
		Py_DECREF((PyObject *)q);
		return NULL;
	}
	return (PyObject *)q;
}

/* Request.items(requests) returns one request for many transforms and runs of plans. */
static PyObject *make_items(PyObject *type, PyObject *arg)
{
	PyObject *items = PySequence_Tuple(arg);
	struct py_request *q;

	(void)type;
	if (!items)
		return NULL;
	for (Py_ssize_t i = 0; i < PyTuple_Size(items); i++) {
		PyObject *item = PyTuple_GetItem(items, i);

		if (Py_TYPE(item) != core.request_type || ((struct py_request *)item)->kind > REQUEST_PLAN) {
			PyErr_SetString(PyExc_TypeError, "items are transforms and runs of plans");
			Py_DECREF(items);
			return NULL;
		}
	}
	q = py_request_alloc(REQUEST_ITEMS);
	if (!q) {
		Py_DECREF(items);
		return NULL;
	}
	q->items = items;
	return (PyObject *)q;
}

/* Reads the index at which each tensor starts in the global tensor into q->start, which must be large enough
 * for all of them. Returns 0, or -1 with an exception. */
static int parse_starts(struct py_request *q, PyObject *starts)
{
	int64_t *at = q->start;
	PyObject *tuple = PySequence_Tuple(starts);
	int rc = 0;

	if (!tuple)
		return -1;
	if (PyTuple_Size(tuple) != PyTuple_Size(q->items)) {
		PyErr_Format(PyExc_ValueError, "starts: %zd of them for %zd tensors", PyTuple_Size(tuple),
		             PyTuple_Size(q->items));
		rc = -1;
	}
	for (Py_ssize_t i = 0; rc == 0 && i < PyTuple_Size(tuple); i++) {
		const int rank = ((struct py_tensor *)PyTuple_GetItem(q->items, i))->rank;

		rc = parse_numbers(PyTuple_GetItem(tuple, i), "start", rank, at);
		at += rank;
	}
	Py_DECREF(tuple);
	return rc;
}

static int parse_slices(struct py_request *q, PyObject *starts, PyObject *shape)
{
	const Py_ssize_t n = PyTuple_Size(q->items);
	size_t numbers = 0;

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GetItem(q->items, i);

		if (Py_TYPE(item) != core.tensor_type) {
			PyErr_SetString(PyExc_TypeError, "slices are tensors");
			return -1;
		}
		numbers += (size_t)((struct py_tensor *)item)->rank;
	}
	if (q->n_destinations > (size_t)n) {
		PyErr_Format(PyExc_ValueError, "%zu destinations of %zd tensors", q->n_destinations, n);
		return -1;
	}
	q->start = calloc(numbers ? numbers : 1, sizeof *q->start);
	if (!q->start) {
		PyErr_NoMemory();
		return -1;
	}
	if (parse_starts(q, starts) < 0)
		return -1;
	if (shape == Py_None || n == 0)
		return 0;
	q->has_shape = true;
	return parse_numbers(shape, "shape", ((struct py_tensor *)PyTuple_GetItem(q->items, 0))->rank,
	                     q->shape);
}

/* Request.reshard(tensors, starts, n_destinations, shape) returns a request to assemble slices of a global
 * tensor from other slices of it. tensors are the n_destinations destinations, then the sources. starts has
 * the index at which each of them begins in the global tensor, and shape, which may be None, the extents of
 * the global tensor. */
static PyObject *make_reshard(PyObject *type, PyObject *args)
{
	PyObject *tensors, *starts, *shape;
	unsigned long long n_destinations;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "OOO&O:reshard", &tensors, &starts, parse_u64, &n_destinations, &shape))
		return NULL;
	q = py_request_alloc(REQUEST_RESHARD);
	if (!q)
		return NULL;
	q->n_destinations = n_destinations;
	q->items = PySequence_Tuple(tensors);
	if (!q->items || parse_slices(q, starts, shape) < 0) {
		Py_DECREF((PyObject *)q);
		return NULL;
	}
	return (PyObject *)q;
}

static PyMethodDef py_request_methods[] = {
	{ "transform", make_transform, METH_VARARGS | METH_STATIC,
	  "transform(dst, src, permute, before, after, mode, value, cast=None, scale=None, bias=None, amax=None, "
	  "further=None)"
	  "\n--\n\n"
	  "Moves src into dst, and into further destinations." },
	{ "blocks", make_blocks, METH_VARARGS | METH_STATIC,
	  "blocks(scatter, dst, src, permute, all_dst, all_src, index, is_index_shared, limit, dst_step, src_step, "
	  "cast=None, scale=None, bias=None, dst_layers=None, src_layers=None)\n--\n\n"
	  "Moves the blocks that an index selects, in each layer." },
	{ "again", py_request_again, METH_VARARGS,
	  "again(index, bytes, layers)\n--\n\n"
	  "The same blocks by another list, between these bytes and these layers." },
	{ "run_plan", make_run, METH_VARARGS | METH_STATIC,
	  "run_plan(plan, dst, src, scale=None, bias=None, amax_scale=None, amax_inverse=None)\n--\n\n"
	  "Runs a plan." },
	{ "items", make_items, METH_O | METH_STATIC, "items(requests)\n--\n\nMany of them in one request." },
	{ "reshard", make_reshard, METH_VARARGS | METH_STATIC,
	  "reshard(tensors, starts, n_destinations, shape)\n--\n\n"
	  "Puts slices of a tensor together from others; destinations come first." },
	{ 0 },
};

static PyType_Slot py_request_slots[] = {
	{ Py_tp_doc, (void *)"A request, which keeps its tensors." },
	{ Py_tp_dealloc, py_request_dealloc },
	{ Py_tp_methods, py_request_methods },
	{ 0 },
};

PyType_Spec py_request_spec = {
	.name = "tmaclient._core.Request",
	.basicsize = sizeof(struct py_request),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = py_request_slots,
};
