/* SPDX-License-Identifier: Apache-2.0 */
/* The type Request: what to move, between tensors, before it is known where they are. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static struct py_request *py_request_alloc(enum py_request_kind kind)
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
	Py_XDECREF((PyObject *)q->plan);
	Py_XDECREF((PyObject *)q->index);
	Py_XDECREF((PyObject *)q->all_dst);
	Py_XDECREF((PyObject *)q->all_src);
	Py_XDECREF(q->items);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- Parsing --------------------------------------------------------------------------------------- */

static bool has_method(PyObject *object, const char *name)
{
	PyObject *value = PyObject_GetAttrString(object, name);

	PyErr_Clear();
	Py_XDECREF(value);
	return value != NULL;
}

/* NumPy's scalars have __float__, too, and drop the imaginary part there. */
static bool is_complex(PyObject *object)
{
	PyObject *dtype, *kind;
	const char *text = NULL;
	bool is = has_method(object, "__complex__") && !has_method(object, "__float__");

	if (is || PyFloat_Check(object) || !has_method(object, "dtype"))
		return is;
	dtype = PyObject_GetAttrString(object, "dtype");
	kind = dtype ? PyObject_GetAttrString(dtype, "kind") : NULL;
	text = kind && PyUnicode_Check(kind) ? PyUnicode_AsUTF8AndSize(kind, NULL) : NULL;
	is = text && !strcmp(text, "c");
	PyErr_Clear();
	Py_XDECREF(dtype);
	Py_XDECREF(kind);
	return is;
}

int number_parse(PyObject *object, struct tma_number *ret)
{
	PyObject *index = NULL;

	*ret = (struct tma_number){ 0 };
	if (PyIndex_Check(object))
		index = PyNumber_Index(object);
	if (!index && PyErr_Occurred()) { /* an array's scalar has the method even if it is no integer */
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
			PyErr_Format(PyExc_OverflowError, "value: no element type has the number %S", object);
			return -1;
		}
		return 0;
	}
	if (PyComplex_Check(object) || is_complex(object)) {
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
		PyErr_Format(PyExc_TypeError, "value: %R is no number", object);
	}
	return -1;
}

/* A sequence of n numbers. */
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
	    parse_numbers(after, "pad", q->dst->rank, q->after) < 0 || number_parse(value, &q->value) < 0)
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

/* Request.transform(dst, src, permute, before, after, mode, value) */
static PyObject *make_transform(PyObject *type, PyObject *args)
{
	PyObject *dst, *src, *perm, *before, *after, *value;
	const char *mode;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "O!O!OOOsO:transform", core.tensor_type, &dst, core.tensor_type, &src,
	                      &perm, &before, &after, &mode, &value))
		return NULL;
	q = py_request_alloc(REQUEST_TRANSFORM);
	if (!q)
		return NULL;
	q->dst = own(dst);
	q->src = own(src);
	if (parse_perm(q, perm) < 0 || parse_pads(q, before, after, mode, value) < 0) {
		Py_DECREF(q);
		return NULL;
	}
	return (PyObject *)q;
}

/* Request.blocks(scatter, dst, src, permute, all_dst, all_src, index, is_index_shared, limit, dst_step,
 * src_step): dst and src are the blocks at the lowest addresses of all_dst and all_src. */
static PyObject *make_blocks(PyObject *type, PyObject *args)
{
	PyObject *dst, *src, *perm, *all_dst, *all_src, *index;
	long long limit, dst_step, src_step;
	int is_scatter, is_shared;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "pO!O!OO!O!O!pLLL:blocks", &is_scatter, core.tensor_type, &dst,
	                      core.tensor_type, &src, &perm, core.tensor_type, &all_dst, core.tensor_type,
	                      &all_src, core.tensor_type, &index, &is_shared, &limit, &dst_step, &src_step))
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
	q->limit = limit;
	q->dst_step = dst_step;
	q->src_step = src_step;
	if (parse_perm(q, perm) < 0) {
		Py_DECREF((PyObject *)q);
		return NULL;
	}
	return (PyObject *)q;
}

/* Request.run_plan(plan, dst, src) */
static PyObject *make_run(PyObject *type, PyObject *args)
{
	PyObject *plan, *dst, *src;
	struct py_request *q;

	(void)type;
	if (!PyArg_ParseTuple(args, "O!O!O!:run_plan", core.plan_type, &plan, core.tensor_type, &dst,
	                      core.tensor_type, &src))
		return NULL;
	if (py_plan_check(((struct py_plan *)plan)->dst, (struct py_tensor *)dst, "out") < 0 ||
	    py_plan_check(((struct py_plan *)plan)->src, (struct py_tensor *)src, "src") < 0)
		return NULL;
	q = py_request_alloc(REQUEST_PLAN);
	if (!q)
		return NULL;
	Py_INCREF(plan);
	q->plan = (struct py_plan *)plan;
	q->dst = own(dst);
	q->src = own(src);
	return (PyObject *)q;
}

/* Request.items(requests) */
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

static PyMethodDef py_request_methods[] = {
	{ "transform", make_transform, METH_VARARGS | METH_STATIC,
	  "transform(dst, src, permute, before, after, mode, value)\n--\n\nMoves src into dst." },
	{ "blocks", make_blocks, METH_VARARGS | METH_STATIC,
	  "blocks(scatter, dst, src, permute, all_dst, all_src, index, is_index_shared, limit, dst_step, src_step)\n--\n\n"
	  "Moves the blocks that an index selects." },
	{ "run_plan", make_run, METH_VARARGS | METH_STATIC, "run_plan(plan, dst, src)\n--\n\nRuns a plan." },
	{ "items", make_items, METH_O | METH_STATIC, "items(requests)\n--\n\nMany of them in one request." },
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

/* ---- Resolving ------------------------------------------------------------------------------------- */

static void set_tensor(struct tma_tensor *ret, const struct py_tensor *t, const struct tma_place *place)
{
	*ret = (struct tma_tensor){ .region = place->region,
		                    .offset = place->offset,
		                    .dtype = t->dtype,
		                    .rank = t->rank,
		                    .strides = t->strides };
	memcpy(ret->shape, t->shape, sizeof t->shape);
}

static void set_transform(struct resolved *r, const struct py_request *q)
{
	set_tensor(&r->dst, q->dst, &r->dst_place);
	set_tensor(&r->src, q->src, &r->src_place);
	r->transform = (struct tma_transform){ .dst = &r->dst,
		                               .src = &r->src,
		                               .perm = q->has_perm ? q->perm : NULL,
		                               .before = q->has_pads ? q->before : NULL,
		                               .after = q->has_pads ? q->after : NULL,
		                               .mode = q->mode,
		                               .value = q->value };
}

/* The place of a block is in a region that has all of them. */
static int place_block(struct py_client *c, const struct py_tensor *all, const struct py_tensor *block,
                       bool writable, struct tma_place *ret)
{
	if (py_region_place(c, all, writable, ret) < 0)
		return -1;
	ret->offset += (uint64_t)(block->data - all->data);
	return 0;
}

static int resolve_blocks(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	if (place_block(c, q->all_dst, q->dst, true, &r->dst_place) < 0 ||
	    place_block(c, q->all_src, q->src, false, &r->src_place) < 0)
		return -1;
	set_transform(r, q);
	if (q->index->rank != 1 || (q->index->dtype != TMA_INT32 && q->index->dtype != TMA_INT64) ||
	    !py_tensor_is_contiguous(q->index) || (!q->is_index_shared && !py_tensor_is_host(q->index))) {
		PyErr_SetString(PyExc_ValueError, "index: a contiguous list of int32 or int64");
		return -1;
	}
	r->blocks = (struct tma_blocks){ .transform = &r->transform,
		                         .count = (size_t)py_tensor_count(q->index),
		                         .index_dtype = q->index->dtype,
		                         .limit = (uint64_t)q->limit,
		                         .dst_step = (uint64_t)q->dst_step,
		                         .src_step = (uint64_t)q->src_step };
	if (q->is_index_shared)
		return py_region_place(c, q->index, false, &r->blocks.index_at);
	r->blocks.index = q->index->data;
	return 0;
}

static int resolve_items(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	const size_t n = (size_t)PyTuple_Size(q->items);

	r->items = calloc(n ? n : 1, sizeof *r->items);
	r->each = calloc(n ? n : 1, sizeof *r->each);
	if (!r->items || !r->each) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		struct py_request *item = (struct py_request *)PyTuple_GetItem(q->items, (Py_ssize_t)i);

		if (py_request_resolve(c, item, &r->each[i]) < 0)
			return -1;
		r->n_items++;
		if (item->kind == REQUEST_PLAN)
			r->items[i] = (struct tma_item){ .plan = item->plan->plan,
				                         .dst = r->each[i].dst_place,
				                         .src = r->each[i].src_place };
		else
			r->items[i] = (struct tma_item){ .transform = &r->each[i].transform };
	}
	return 0;
}

/* c NULL: places do not matter. */
int py_request_resolve(struct py_client *c, struct py_request *q, struct resolved *r)
{
	int rc = 0;

	memset(r, 0, sizeof *r);
	if (q->kind == REQUEST_ITEMS)
		rc = resolve_items(c, q, r);
	else {
		const bool is_blocks = q->kind == REQUEST_BLOCKS;

		if (q->kind == REQUEST_PLAN && c != q->plan->client) {
			PyErr_SetString(PyExc_ValueError, "the plan belongs to another client");
			rc = -1;
		}
		if (rc == 0 && q->kind == REQUEST_PLAN && !q->plan->plan) {
			PyErr_SetString(PyExc_ValueError, "the plan was released");
			rc = -1;
		}
		if (rc == 0 && c && !is_blocks)
			rc = py_region_place(c, q->dst, true, &r->dst_place);
		if (rc == 0 && c && !is_blocks)
			rc = py_region_place(c, q->src, false, &r->src_place);
		if (rc == 0 && is_blocks)
			rc = resolve_blocks(c, q, r);
		else if (rc == 0 && q->kind == REQUEST_TRANSFORM)
			set_transform(r, q);
	}
	if (rc < 0)
		resolved_deinit(r);
	return rc;
}

void resolved_deinit(struct resolved *r)
{
	free(r->items);
	free(r->each);
	r->items = NULL;
	r->each = NULL;
}
