/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tensors of objects that export their memory by DLPack, and exports tensors by DLPack. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

static const struct {
	uint8_t code;
	uint8_t bits;
} codes[] = {
	[TMA_BOOL] = { DL_BOOL, 8 },
	[TMA_UINT8] = { DL_UINT, 8 },
	[TMA_INT8] = { DL_INT, 8 },
	[TMA_UINT16] = { DL_UINT, 16 },
	[TMA_INT16] = { DL_INT, 16 },
	[TMA_UINT32] = { DL_UINT, 32 },
	[TMA_INT32] = { DL_INT, 32 },
	[TMA_UINT64] = { DL_UINT, 64 },
	[TMA_INT64] = { DL_INT, 64 },
	[TMA_FLOAT8_E4M3FN] = { DL_FLOAT8_E4M3FN, 8 },
	[TMA_FLOAT8_E5M2] = { DL_FLOAT8_E5M2, 8 },
	[TMA_FLOAT16] = { DL_FLOAT, 16 },
	[TMA_BFLOAT16] = { DL_BFLOAT, 16 },
	[TMA_FLOAT32] = { DL_FLOAT, 32 },
	[TMA_FLOAT64] = { DL_FLOAT, 64 },
	[TMA_COMPLEX64] = { DL_COMPLEX, 64 },
	[TMA_COMPLEX128] = { DL_COMPLEX, 128 },
};

/* Types that DLPack has and tmad does not, for error messages. Integers of unusual sizes are not listed. */
static const struct {
	uint8_t code;
	uint8_t bits;
	const char *name;
} others[] = {
	{ 3, 64, "an opaque handle" },  { 7, 8, "float8_e3m4" },      { 8, 8, "float8_e4m3" },
	{ 9, 8, "float8_e4m3b11fnuz" }, { 11, 8, "float8_e4m3fnuz" }, { 13, 8, "float8_e5m2fnuz" },
	{ 14, 8, "float8_e8m0fnu" },    { 15, 6, "float6_e2m3fn" },   { 16, 6, "float6_e3m2fn" },
	{ 17, 4, "float4_e2m1fn" },
};

/* ---- From others ----------------------------------------------------------------------------------- */

void dlpack_delete(struct py_tensor *t)
{
	if (t->is_versioned) {
		DLManagedTensorVersioned *managed = t->managed;

		if (managed->deleter)
			managed->deleter(managed);
	} else {
		DLManagedTensor *managed = t->managed;

		if (managed->deleter)
			managed->deleter(managed);
	}
	t->managed = NULL;
}

/* Raises TypeError for an element type that tmad does not have. Returns -1. */
static int refuse(const DLTensor *dl)
{
	const char *const what = dl->dtype.code == DL_INT    ? "int"
	                         : dl->dtype.code == DL_UINT ? "uint"
	                                                     : "elements";

	for (size_t i = 0; dl->dtype.lanes == 1 && i < sizeof others / sizeof *others; i++)
		if (dl->dtype.code == others[i].code && dl->dtype.bits == others[i].bits) {
			PyErr_Format(
			    PyExc_TypeError,
			    "elements of %s (DLPack's type code %d): tmad has no such type; to move their "
			    "bytes, view them as uint8",
			    others[i].name, dl->dtype.code);
			return -1;
		}
	PyErr_Format(
	    PyExc_TypeError,
	    "%s of %d bits in %d lanes (DLPack's type code %d): tmad has no such type; to move their bytes, "
	    "view them as uint8",
	    what, dl->dtype.bits, dl->dtype.lanes, dl->dtype.code);
	return -1;
}

int dlpack_take(struct py_tensor *t, const DLTensor *dl)
{
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (dl->dtype.code == codes[i].code && dl->dtype.bits == codes[i].bits &&
		    dl->dtype.lanes == 1) {
			t->dtype = (enum tma_dtype)i;
			goto found;
		}
	return refuse(dl);

found:
	if (dl->device.type != DEVICE_CPU && dl->device.type != DEVICE_CUDA &&
	    dl->device.type != DEVICE_CUDA_HOST && dl->device.type != DEVICE_CUDA_MANAGED) {
		PyErr_Format(PyExc_TypeError,
		             "memory of DLPack's device type %d: tmad takes that of CPUs (1) and CUDA (2)",
		             dl->device.type);
		return -1;
	}
	if (dl->ndim < 0 || dl->ndim > TMA_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "an array of %d dimensions; tmad takes at most %d", dl->ndim,
		             TMA_MAX_RANK);
		return -1;
	}
	if (dl->ndim > 0 && !dl->shape) {
		PyErr_SetString(PyExc_ValueError, "an array of DLPack without a shape");
		return -1;
	}
	t->rank = dl->ndim;
	if (dl->ndim > 0)
		memcpy(t->shape, dl->shape, (size_t)dl->ndim * sizeof *t->shape);
	py_tensor_set_dense(t);
	if (dl->ndim > 0 && dl->strides)
		memcpy(t->strides, dl->strides, (size_t)dl->ndim * sizeof *t->strides);
	t->device_type = dl->device.type;
	t->device_id = dl->device.id;
	if (dl->data)
		t->data = (char *)((uintptr_t)dl->data + (uintptr_t)dl->byte_offset);
	return py_tensor_check(t);
}

static int take_capsule(struct py_tensor *t, PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");

		if (managed->version.major != DLPACK_MAJOR) {
			PyErr_Format(PyExc_BufferError, "an array of DLPack %u; this is %d",
			             managed->version.major, DLPACK_MAJOR);
			return -1;
		}
		if (PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0)
			return -1;
		t->managed = managed;
		t->is_versioned = true;
		t->is_readonly = managed->flags & DL_READ_ONLY;
		return dlpack_take(t, &managed->tensor);
	}
	if (PyCapsule_IsValid(capsule, "dltensor")) {
		DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");

		if (PyCapsule_SetName(capsule, "used_dltensor") < 0)
			return -1;
		t->managed = managed;
		return dlpack_take(t, &managed->tensor);
	}
	PyErr_SetString(PyExc_BufferError, "__dlpack__ returned no capsule of a tensor");
	return -1;
}

/* Calls __dlpack__(stream=..., max_version=...), or, if that raises TypeError, without max_version, which
 * older producers do not know. Returns the capsule, or NULL with an exception. */
static PyObject *ask(PyObject *object, PyObject *stream)
{
	PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
	PyObject *none = method ? PyTuple_New(0) : NULL, *kwargs = NULL, *capsule = NULL;

	if (none)
		kwargs = Py_BuildValue("{s:O,s:(ii)}", "stream", stream, "max_version", DLPACK_MAJOR,
		                       DLPACK_MINOR);
	if (kwargs)
		capsule = PyObject_Call(method, none, kwargs);
	if (!capsule && kwargs && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		if (PyDict_DelItemString(kwargs, "max_version") == 0)
			capsule = PyObject_Call(method, none, kwargs);
	}
	Py_XDECREF(method);
	Py_XDECREF(none);
	Py_XDECREF(kwargs);
	return capsule;
}

struct py_tensor *py_tensor_of_dlpack(PyObject *object, PyObject *stream)
{
	PyObject *capsule = ask(object, stream);
	struct set_aside aside;
	struct py_tensor *t;

	if (!capsule)
		return NULL;
	t = py_tensor_alloc();
	if (t && take_capsule(t, capsule) < 0) {
		Py_DECREF(t);
		t = NULL;
	}
	exception_set_aside(&aside);
	Py_DECREF(capsule); /* if the tensor was not taken, this runs the producer's destructor */
	exception_put_back(&aside);
	return t;
}

/* ---- For others ------------------------------------------------------------------------------------ */

/* A tensor that is exported: the struct of either version, and the sizes that it points to. The struct comes
 * first, so that its deleter frees all of it. */
struct export
{
	union {
		DLManagedTensor managed;
		DLManagedTensorVersioned versioned;
	};
	int64_t shape[TMA_MAX_RANK];
	int64_t strides[TMA_MAX_RANK];
};

/* Drops the reference of an exported tensor to its Tensor object. The consumer may call its deleter in any
 * thread, and even after Python has ended, when there is nothing to drop. */
static void drop(void *owner)
{
	PyGILState_STATE state;

	if (!Py_IsInitialized())
		return;
	state = PyGILState_Ensure();
	Py_DECREF((PyObject *)owner);
	PyGILState_Release(state);
}

static void delete_managed(DLManagedTensor *self)
{
	drop(self->context);
	free(self);
}

static void delete_versioned(DLManagedTensorVersioned *self)
{
	drop(self->context);
	free(self);
}

/* Destructor of a capsule. If a consumer has taken the tensor, it has renamed the capsule, and nothing is
 * left to free. */
static void on_capsule_freed(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
		delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
	else if (PyCapsule_IsValid(capsule, "dltensor"))
		delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
}

PyObject *py_tensor_dlpack_device(PyObject *self, PyObject *unused)
{
	const struct py_tensor *t = (struct py_tensor *)self;

	(void)unused;
	return Py_BuildValue("ii", t->device_type, t->device_id);
}

static bool parse_pair(PyObject *object, const char *name, int *ret_a, int *ret_b)
{
	long a, b;

	if (!PyTuple_Check(object) || PyTuple_Size(object) != 2) {
		PyErr_Format(PyExc_TypeError, "%s: %R is no tuple of two integers", name, object);
		return false;
	}
	a = PyLong_AsLong(PyTuple_GetItem(object, 0));
	b = a == -1 && PyErr_Occurred() ? -1 : PyLong_AsLong(PyTuple_GetItem(object, 1));
	if ((a == -1 || b == -1) && PyErr_Occurred())
		return false;
	if (a != (int)a || b != (int)b) {
		PyErr_Format(PyExc_OverflowError, "%s: %R is too large", name, object);
		return false;
	}
	*ret_a = (int)a;
	*ret_b = (int)b;
	return true;
}

static int check_arguments(const struct py_tensor *t, PyObject *stream, PyObject *device, PyObject *copy)
{
	int type, id, is_copy;

	if (py_tensor_is_host(t) && stream != Py_None) {
		PyErr_SetString(PyExc_BufferError, "stream: host memory has none; pass None");
		return -1;
	}
	is_copy = PyObject_IsTrue(copy);
	if (is_copy < 0)
		return -1;
	if (is_copy) {
		PyErr_SetString(PyExc_BufferError,
		                "copy: a tensor is exported as it is; copy what comes of it");
		return -1;
	}
	if (device == Py_None)
		return 0;
	if (!parse_pair(device, "dl_device", &type, &id))
		return -1;
	if (type != t->device_type || id != t->device_id) {
		PyErr_Format(PyExc_BufferError, "dl_device: the tensor is on device (%d, %d), not (%d, %d)",
		             t->device_type, t->device_id, type, id);
		return -1;
	}
	return 0;
}

/* Reads the consumer's max_version. Returns 0, or -1 with an exception. */
static int parse_version(PyObject *version, bool *ret_is_versioned)
{
	int major, minor;

	*ret_is_versioned = false;
	if (version == Py_None)
		return 0;
	if (!parse_pair(version, "max_version", &major, &minor))
		return -1;
	*ret_is_versioned = major >= DLPACK_MAJOR;
	return 0;
}

PyObject *py_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None, *capsule;
	struct py_tensor *t = (struct py_tensor *)self;
	struct export *export;
	bool is_versioned;
	DLTensor *dl;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version, &device,
	                                 &copy))
		return NULL;
	if (check_arguments(t, stream, device, copy) < 0 || parse_version(version, &is_versioned) < 0)
		return NULL;
	if (t->is_readonly && !is_versioned) {
		PyErr_SetString(PyExc_BufferError,
		                "the tensor is read-only, which only DLPack 1.0 and later can say");
		return NULL;
	}
	export = calloc(1, sizeof *export);
	if (!export)
		return PyErr_NoMemory();
	if (is_versioned) {
		export->versioned = (DLManagedTensorVersioned){ .version = { DLPACK_MAJOR, DLPACK_MINOR },
			                                        .context = self,
			                                        .deleter = delete_versioned,
			                                        .flags = t->is_readonly ? DL_READ_ONLY : 0 };
		dl = &export->versioned.tensor;
	} else {
		export->managed = (DLManagedTensor){ .context = self, .deleter = delete_managed };
		dl = &export->managed.tensor;
	}
	memcpy(export->shape, t->shape, sizeof t->shape);
	memcpy(export->strides, t->strides, sizeof t->strides);
	dl->data = t->data;
	dl->device.type = t->device_type;
	dl->device.id = t->device_id;
	dl->ndim = t->rank;
	dl->dtype.code = codes[t->dtype].code;
	dl->dtype.bits = codes[t->dtype].bits;
	dl->dtype.lanes = 1;
	dl->shape = export->shape;
	dl->strides = export->strides;
	capsule = PyCapsule_New(export, is_versioned ? "dltensor_versioned" : "dltensor", on_capsule_freed);
	if (!capsule) {
		free(export);
		return NULL;
	}
	Py_INCREF(self);
	return capsule;
}
