/* SPDX-License-Identifier: Apache-2.0 */
/* The module tmaclient._core: its types, its few functions, and how a status becomes an exception. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* HAS_CUDA tells whether the extension contains the engine for GPUs. */
#ifdef HAVE_CUDA
#define HAS_CUDA 1
#else
#define HAS_CUDA 0
#endif

struct core_state core;

int raise_status(int status, const char *format, ...)
{
	PyObject *text, *exception;
	char message[1024];
	va_list args;

	if (PyErr_Occurred()) /* what a signal's handler has raised comes first */
		return -1;
	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	if (!core.make_error) {
		PyObject *module = PyImport_ImportModule("tmaclient._errors");

		core.make_error = module ? PyObject_GetAttrString(module, "make") : NULL;
		Py_XDECREF(module);
		if (!core.make_error)
			return -1;
	}
	text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
	exception = text ? PyObject_CallFunction(core.make_error, "iO", status, text) : NULL;
	Py_XDECREF(text);
	if (exception) {
		PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
		Py_DECREF(exception);
	}
	return -1;
}

void exception_set_aside(struct set_aside *ret)
{
	PyErr_Fetch(&ret->type, &ret->value, &ret->trace);
}

void exception_put_back(struct set_aside *aside)
{
	if (PyErr_Occurred())
		py_tell_later();
	PyErr_Restore(aside->type, aside->value, aside->trace);
}

/* ---- Functions ------------------------------------------------------------------------------------- */

static PyObject *encode_number(PyObject *self, PyObject *args)
{
	uint8_t bytes[16];
	struct tma_number number;
	PyObject *object;
	const char *name;
	int dtype;

	(void)self;
	if (!PyArg_ParseTuple(args, "sO:encode_number", &name, &object) ||
	    number_parse(object, "value", &number) < 0)
		return NULL;
	dtype = tma_dtype_parse(name);
	if (dtype < 0 || tma_number_encode((enum tma_dtype)dtype, &number, bytes) < 0) {
		PyObject *text = PyObject_Str(object);
		const char *number = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;

		if (number)
			raise_status(TMA_INVALID_ARGUMENT, "value: %s is no value of %s", number, name);
		Py_XDECREF(text);
		return NULL;
	}
	return PyBytes_FromStringAndSize((char *)bytes, (Py_ssize_t)tma_dtype_size((enum tma_dtype)dtype));
}

/* parse_dtype(name) returns tmad's name of a type by any of its names, or None. */
static PyObject *parse_dtype(PyObject *self, PyObject *args)
{
	PyObject *object;
	const char *name;
	Py_ssize_t len;
	int dtype;

	(void)self;
	if (!PyArg_ParseTuple(args, "U:parse_dtype", &object))
		return NULL;
	name = PyUnicode_AsUTF8AndSize(object, &len);
	if (!name)
		PyErr_Clear(); /* lone surrogates, which no name has */
	dtype = name && strlen(name) == (size_t)len ? tma_dtype_parse(name) : TMA_NOT_FOUND;
	if (dtype < 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(tma_dtype_name((enum tma_dtype)dtype));
}

static int read_integer(enum tma_dtype dtype, const char *at, int64_t *ret)
{
	switch (dtype) {
#define INTEGER(name, type)                       \
	case name: {                              \
		type value;                       \
		memcpy(&value, at, sizeof value); \
		*ret = (int64_t)value;            \
		return 0;                         \
	}
		INTEGER(TMA_UINT8, uint8_t)
		INTEGER(TMA_INT8, int8_t)
		INTEGER(TMA_UINT16, uint16_t)
		INTEGER(TMA_INT16, int16_t)
		INTEGER(TMA_UINT32, uint32_t)
		INTEGER(TMA_INT32, int32_t)
		INTEGER(TMA_INT64, int64_t)
#undef INTEGER
	case TMA_UINT64: {
		uint64_t value;

		memcpy(&value, at, sizeof value);
		*ret =
		    value > INT64_MAX ? INT64_MAX : (int64_t)value; /* beyond any array, and not negative */
		return 0;
	}
	default:
		PyErr_Format(PyExc_TypeError, "index: elements of %s; it has to be of integers",
		             tma_dtype_name(dtype));
		return -1;
	}
}

/* Looks for two entries that are the same by a bit for each block, which is fast but names neither. Returns
 * true as well where the bits would take more memory than a table. */
static bool may_be_twice(const int64_t *values, int64_t n, int64_t limit)
{
	unsigned char *seen = limit / 128 <= n ? calloc(1, (size_t)limit / 8 + 1) : NULL;
	bool is_twice = !seen;

	for (int64_t i = 0; !is_twice && i < n; i++) {
		const unsigned bit = 1u << values[i] % 8;

		is_twice = seen[values[i] / 8] & bit;
		seen[values[i] / 8] |= (unsigned char)bit;
	}
	free(seen);
	return is_twice;
}

/* Raises OverlapError if two entries are the same. */
static int check_distinct(const int64_t *values, int64_t n)
{
	const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	int64_t *table; /* It finds an entry's number, from 1 on, by its value. */
	int bits = 1, rc = 0;

	while (bits < 62 && INT64_C(1) << bits < 2 * n)
		bits++;
	table = calloc((size_t)1 << bits, sizeof *table);
	if (!table) {
		PyErr_NoMemory();
		return -1;
	}
	for (int64_t i = 0; rc == 0 && i < n; i++) {
		uint64_t at = (uint64_t)values[i] * factor >> (64 - bits);

		while (table[at] && values[table[at] - 1] != values[i])
			at = (at + 1) & ((UINT64_C(1) << bits) - 1);
		if (table[at])
			rc = raise_status(
			    TMA_OVERLAP,
			    "index[%lld]: %lld, as index[%lld]: two blocks would be written to the "
			    "same place in dst",
			    (long long)i, (long long)values[i], (long long)(table[at] - 1));
		table[at] = i + 1;
	}
	free(table);
	return rc;
}

/* check_index(index, limit, is_distinct) makes a contiguous copy as int64, in which negative entries count
 * from the end. */
static PyObject *check_index(PyObject *self, PyObject *args)
{
	struct py_tensor *index, *copy = NULL;
	PyObject *object, *memory;
	long long limit;
	int is_distinct;
	int64_t *values;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!Lp:check_index", core.tensor_type, &object, &limit, &is_distinct))
		return NULL;
	index = (struct py_tensor *)object;
	if (index->rank != 1 || !py_tensor_is_host(index)) {
		PyErr_SetString(PyExc_ValueError, "index: it has to be a list, of one dimension");
		return NULL;
	}
	if (index->shape[0] > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof *values)
		return PyErr_NoMemory();
	memory =
	    PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)index->shape[0] * (Py_ssize_t)sizeof *values);
	if (!memory)
		return NULL;
	values = (int64_t *)(void *)PyByteArray_AsString(memory);
	for (int64_t i = 0; i < index->shape[0]; i++) {
		const char *at = index->data + i * index->strides[0] * (int64_t)tma_dtype_size(index->dtype);
		int64_t value;

		if (read_integer(index->dtype, at, &value) < 0)
			goto out;
		values[i] = value < 0 ? value + limit : value;
		if (values[i] < 0 || values[i] >= limit) {
			raise_status(TMA_OUT_OF_RANGE, "index: entry %lld is %lld, of %lld blocks",
			             (long long)i, (long long)value, limit);
			goto out;
		}
	}
	if (is_distinct && may_be_twice(values, index->shape[0], limit) &&
	    check_distinct(values, index->shape[0]) < 0)
		goto out;
	copy = py_tensor_of_buffer(memory, TMA_UINT8);
	if (copy) {
		PyObject *viewed = PyObject_CallMethod((PyObject *)copy, "viewed", "s(L)", "int64",
		                                       (long long)index->shape[0]);

		Py_DECREF((PyObject *)copy);
		copy = (struct py_tensor *)viewed;
	}
out:
	Py_DECREF(memory);
	return (PyObject *)copy;
}

/* layout(dtype, shape, strides): a tensor without memory. */
static PyObject *make_layout(PyObject *self, PyObject *args)
{
	PyObject *shape, *strides;
	struct py_tensor *t;
	const char *name;
	int n = 0, dtype;

	(void)self;
	if (!PyArg_ParseTuple(args, "sOO:layout", &name, &shape, &strides))
		return NULL;
	dtype = tma_dtype_parse(name);
	if (dtype < 0) {
		PyErr_Format(PyExc_TypeError, "dtype: tmad has no element type %s", name);
		return NULL;
	}
	t = py_tensor_alloc();
	if (!t)
		return NULL;
	t->dtype = (enum tma_dtype)dtype;
	if (parse_sizes(shape, "shape", t->shape, &t->rank) == 0 &&
	    parse_sizes(strides, "strides", t->strides, &n) == 0) {
		if (n != t->rank)
			PyErr_SetString(PyExc_ValueError, "strides: one for each dimension");
		else if (py_tensor_check_sizes(t) == 0)
			return (PyObject *)t;
	}
	Py_DECREF((PyObject *)t);
	return NULL;
}

static bool has_word(const struct py_region *r, uint64_t offset)
{
	return r->address && r->region && r->size >= 8 && offset <= r->size - 8;
}

static PyObject *signal_point(PyObject *self, PyObject *args)
{
	uint64_t offset, value;
	PyObject *object;
	struct py_region *r;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!O&O&:signal_point", core.region_type, &object, parse_u64, &offset,
	                      parse_u64, &value))
		return NULL;
	r = (struct py_region *)object;
	if (!has_word(r, offset) || r->is_readonly || tma_point_signal(r->address + offset, value) < 0) {
		PyErr_SetString(PyExc_ValueError, "the timeline is no aligned word of the region");
		return NULL;
	}
	Py_RETURN_NONE;
}

/* device_of(address): the ordinal of the device that has the memory; -1: it is not known. */
static PyObject *device_of(PyObject *self, PyObject *number)
{
	uint64_t address;

	(void)self;
	return parse_u64(number, &address) ? PyLong_FromLong(cuda_device_of(address)) : NULL;
}

/* wait_point(region, offset, value, timeout_ms): whether it was reached. */
static PyObject *wait_point(PyObject *self, PyObject *args)
{
	uint64_t offset, value;
	int timeout_ms, waited_ms = 0, rc = TMA_PENDING;
	PyObject *object;
	struct py_region *r;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!O&O&i:wait_point", core.region_type, &object, parse_u64, &offset,
	                      parse_u64, &value, &timeout_ms))
		return NULL;
	r = (struct py_region *)object;
	if (!has_word(r, offset)) {
		PyErr_SetString(PyExc_ValueError, "the timeline is no aligned word of the region");
		return NULL;
	}
	/* In steps, so that Ctrl-C is heard. */
	while (rc == TMA_PENDING) {
		int step = timeout_ms >= 0 && timeout_ms - waited_ms < 100 ? timeout_ms - waited_ms : 100;

		Py_BEGIN_ALLOW_THREADS rc = tma_point_wait(r->address + offset, value, step);
		Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
		waited_ms += step;
		if (timeout_ms >= 0 && waited_ms >= timeout_ms)
			break;
	}
	if (rc < 0) {
		PyErr_SetString(PyExc_ValueError, "the timeline is no aligned word of the region");
		return NULL;
	}
	return PyBool_FromLong(rc == 0);
}

/* set_timer_slack(ns): sets how late a sleep of this thread may end. */
static PyObject *set_timer_slack(PyObject *self, PyObject *number)
{
	uint64_t ns;

	(void)self;
	if (!parse_u64(number, &ns))
		return NULL;
	prctl(PR_SET_TIMERSLACK, (unsigned long)ns, 0L, 0L, 0L); /* cannot fail, by prctl(2) */
	Py_RETURN_NONE;
}

/* Names and sizes of the element types, and names and numbers of the statuses. */
static PyObject *make_dtypes(void)
{
	PyObject *dict = PyDict_New();

	for (int i = 0; dict && tma_dtype_name((enum tma_dtype)i); i++) {
		PyObject *size = PyLong_FromSize_t(tma_dtype_size((enum tma_dtype)i));

		if (!size || PyDict_SetItemString(dict, tma_dtype_name((enum tma_dtype)i), size) < 0) {
			Py_XDECREF(size);
			Py_DECREF(dict);
			return NULL;
		}
		Py_DECREF(size);
	}
	return dict;
}

static PyObject *make_statuses(void)
{
	PyObject *dict = PyDict_New();

	for (int status = TMA_INVALID_ARGUMENT; dict && status >= TMA_NO_REPLY; status--) {
		PyObject *number = PyLong_FromLong(status);

		if (!number || PyDict_SetItemString(dict, tma_status_name(status), number) < 0) {
			Py_XDECREF(number);
			Py_DECREF(dict);
			return NULL;
		}
		Py_DECREF(number);
	}
	return dict;
}

static PyMethodDef functions[] = {
	{ "encode_number", encode_number, METH_VARARGS,
	  "encode_number(dtype, value)\n--\n\nThe bytes with which padding fills." },
	{ "parse_dtype", parse_dtype, METH_VARARGS,
	  "parse_dtype(name)\n--\n\ntmad's name of a type by any of its names; None: it has no such type." },
	{ "check_apart", check_apart, METH_VARARGS,
	  "check_apart(written, read)\n--\n\nRefuses what is written where it shares bytes; lists of (name, tensor)." },
	{ "check_index", check_index, METH_VARARGS,
	  "check_index(index, limit, is_distinct)\n--\n\nA checked copy, as int64; negative entries count from the end." },
	{ "layout", make_layout, METH_VARARGS,
	  "layout(dtype, shape, strides)\n--\n\nA tensor without memory." },
	{ "signal_point", signal_point, METH_VARARGS,
	  "signal_point(region, offset, value)\n--\n\nSignals a point from this thread." },
	{ "device_of", device_of, METH_O,
	  "device_of(address)\n--\n\nThe ordinal of the CUDA device that has the memory; -1: it is not known." },
	{ "set_timer_slack", set_timer_slack, METH_O,
	  "set_timer_slack(ns)\n--\n\nSets how late a sleep of this thread may end." },
	{ "has_exchange", has_exchange, METH_O,
	  "has_exchange(object)\n--\n\nWhether the object's type has DLPack's table of C functions." },
	{ "exchange_stream", exchange_stream, METH_VARARGS,
	  "exchange_stream(object, device)\n--\n\nThe CUDA stream in which the caller works, by that table; None: it has none." },
	{ "transposed", here_transposed, METH_VARARGS,
	  "transposed(array, axes)\n--\n\nnp.transpose as a new array, moved by this thread; None: not such an array." },
	{ "wait_point", wait_point, METH_VARARGS,
	  "wait_point(region, offset, value, timeout_ms)\n--\n\nWaits for a point; returns whether it was reached." },
	{ 0 },
};

/* ---- The module ------------------------------------------------------------------------------------ */

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **ret)
{
	*ret = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
	if (!*ret)
		return -1;
	Py_INCREF((PyObject *)*ret);
	return PyModule_AddObject(module, name, (PyObject *)*ret);
}

static int core_exec(PyObject *module)
{
	PyObject *dtypes, *statuses;

	if (core.tensor_type) {
		PyErr_SetString(PyExc_ImportError,
		                "tmaclient can be loaded by one interpreter of a process only");
		return -1;
	}
	if (slabs_init() != 0 || here_init() != 0 || exchange_init() != 0) {
		PyErr_NoMemory();
		return -1;
	}
	if (add_type(module, &py_tensor_spec, "Tensor", &core.tensor_type) < 0 ||
	    add_type(module, &py_client_spec, "Client", &core.client_type) < 0 ||
	    add_type(module, &py_region_spec, "Region", &core.region_type) < 0 ||
	    add_type(module, &py_request_spec, "Request", &core.request_type) < 0 ||
	    add_type(module, &py_ticket_spec, "Ticket", &core.ticket_type) < 0 ||
	    add_type(module, &py_plan_spec, "Plan", &core.plan_type) < 0)
		return -1;
	dtypes = make_dtypes();
	statuses = make_statuses();
	if (!dtypes || PyModule_AddObject(module, "DTYPES", dtypes) < 0 || !statuses ||
	    PyModule_AddObject(module, "STATUSES", statuses) < 0)
		return -1;
	if (PyModule_AddIntConstant(module, "MAX_RANK", TMA_MAX_RANK) < 0 ||
	    PyModule_AddIntConstant(module, "VERSION_MAJOR", TMA_VERSION_MAJOR) < 0 ||
	    PyModule_AddObject(module, "HAS_CUDA", PyBool_FromLong(HAS_CUDA)) < 0)
		return -1;
	return PyModule_AddStringConstant(module, "VERSION", tma_version());
}

static PyModuleDef_Slot module_slots[] = {
	{ Py_mod_exec, core_exec },
#ifdef Py_GIL_DISABLED
	{ Py_mod_gil, Py_MOD_GIL_NOT_USED },
#endif
	{ 0 },
};

static struct PyModuleDef module_definition = {
	PyModuleDef_HEAD_INIT,  .m_name = "tmaclient._core", .m_doc = "libtmaclient for Python.",
	.m_methods = functions, .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&module_definition);
}
