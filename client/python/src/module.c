/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the module tmaclient._core: its types, its functions, and how a status becomes an exception.
 * Another interpreter of the same process cannot load it. */
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

	if (PyErr_Occurred()) /* An exception of a signal's handler takes precedence. */
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

/* parse_dtype(name) returns tmad's name of the element type that has this name or alias, or None. */
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
		PyErr_Clear(); /* the text has lone surrogates, which no name has */
	dtype = name && strlen(name) == (size_t)len ? tma_dtype_parse(name) : TMA_NOT_FOUND;
	if (dtype < 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(tma_dtype_name((enum tma_dtype)dtype));
}

/* layout(dtype, shape, strides) returns a tensor without memory. */
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

/* device_of(address) returns the ordinal of the device that has the memory, or -1 if it is not known. */
static PyObject *device_of(PyObject *self, PyObject *number)
{
	uint64_t address;

	(void)self;
	return parse_u64(number, &address) ? PyLong_FromLong(cuda_device_of(address)) : NULL;
}

/* wait_point(region, offset, value, timeout_ms) waits for a point and returns whether it was reached. With
 * timeout_ms == -1 it waits without a limit. */
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
	/* Waits in steps of 100 ms, after each of which signals' handlers run. */
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

/* set_timer_slack(ns) sets how late, in nanoseconds, a sleep of this thread may end. */
static PyObject *set_timer_slack(PyObject *self, PyObject *number)
{
	uint64_t ns;

	(void)self;
	if (!parse_u64(number, &ns))
		return NULL;
	prctl(PR_SET_TIMERSLACK, (unsigned long)ns, 0L, 0L, 0L); /* cannot fail according to prctl(2) */
	Py_RETURN_NONE;
}

/* make_dtypes returns a dict from names of element types to their sizes in bytes, and make_statuses one from
 * names of statuses to their numbers. */
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
	  "check_index(index, src_limit, dst_limit)\n--\n\nA checked copy, as int64; negative numbers count from the end." },
	{ "check_pool", check_pool, METH_VARARGS,
	  "check_pool(pairs)\n--\n\nRefuses pairs of which one reads a block that one writes." },
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
