/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tensors, without a capsule, of arrays whose type has DLPack's table of C functions (dlpack.h), such
 * as torch.Tensor. A move that only permutes, between two such arrays on the same device, is done without any
 * Tensor or Request object.
 *
 * The type itself must have the table. A table that it inherits does not count, because an array of a
 * subclass may be more than its elements. */
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "dlpack.h"

#define MOST_TYPES 16

/* A type that an argument has had. The reference to the type is never dropped, so that no other type gets its
 * address. */
struct known {
	PyTypeObject *type;
	const DLPackExchangeAPI *api; /* NULL: the type has no table that can be used */
	/* Objects of the type have PyTorch's attributes, which tell whether an array is more than its bytes:
	 * whether a gradient is recorded for it, or a negation or conjugation is pending. */
	bool has_grad;
};

static struct known types[MOST_TYPES];
static atomic_size_t n_types; /* number of entries of types; these do not change any more */
static pthread_mutex_t types_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	PyObject *requires_grad, *is_neg, *is_conj, *new_empty;
} names;

int exchange_init(void)
{
	names.requires_grad = PyUnicode_InternFromString("requires_grad");
	names.is_neg = PyUnicode_InternFromString("is_neg");
	names.is_conj = PyUnicode_InternFromString("is_conj");
	names.new_empty = PyUnicode_InternFromString("new_empty");
	return names.requires_grad && names.is_neg && names.is_conj && names.new_empty ? 0 : -1;
}

/* ---- Types ------------------------------------------------------------------------------------------- */

/* Returns the newest table of DLPack 1 that a capsule leads to, or NULL if there is none or it lacks a
 * function that is used here. */
static const DLPackExchangeAPI *table_of(PyObject *capsule)
{
	const DLPackExchangeAPIHeader *header = PyCapsule_IsValid(capsule, "dlpack_exchange_api")
	                                            ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
	                                            : NULL;
	const DLPackExchangeAPI *api;

	while (header && header->version.major > DLPACK_MAJOR)
		header = header->prev_api;
	api = (const DLPackExchangeAPI *)header;
	return api && header->version.major == DLPACK_MAJOR && api->dltensor_from_py_object_no_sync &&
	               api->current_work_stream
	           ? api
	           : NULL;
}

static struct known look_at(PyTypeObject *type)
{
	struct known ret = { .type = type };
	PyObject *dict = PyObject_GetAttrString((PyObject *)type, "__dict__");
	PyObject *capsule = dict ? PyMapping_GetItemString(dict, "__dlpack_c_exchange_api__") : NULL;

	if (capsule)
		ret.api = table_of(capsule);
	PyErr_Clear();
	ret.has_grad = ret.api && PyObject_HasAttrString((PyObject *)type, "requires_grad");
	Py_XDECREF(capsule);
	Py_XDECREF(dict);
	return ret;
}

static const struct known *find(const PyTypeObject *type)
{
	const size_t n = atomic_load_explicit(&n_types, memory_order_acquire);

	for (size_t i = 0; i < n; i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

/* Adds a type to types, unless types is full. */
static void keep(struct known known)
{
	pthread_mutex_lock(&types_lock);
	if (!find(known.type) && n_types < MOST_TYPES) {
		Py_INCREF((PyObject *)known.type);
		types[n_types] = known;
		atomic_fetch_add_explicit(&n_types, 1, memory_order_release);
	}
	pthread_mutex_unlock(&types_lock);
}

/* Sets *ret to what is known of the object's type. Returns whether the type has the table. */
static bool know(PyObject *object, struct known *ret)
{
	PyTypeObject *type = Py_TYPE(object);
	const struct known *found = find(type);

	*ret = found ? *found : look_at(type);
	if (!found)
		keep(*ret);
	return ret->api != NULL;
}

PyObject *has_exchange(PyObject *self, PyObject *object)
{
	struct known known;

	(void)self;
	return PyBool_FromLong(know(object, &known));
}

/* ---- Objects ----------------------------------------------------------------------------------------- */

/* Returns whether the object's attribute is False or, with is_method, its method returns False. Clears any
 * exception. */
static bool is_false(PyObject *object, PyObject *name, bool is_method)
{
	PyObject *value =
	    is_method ? PyObject_CallMethodObjArgs(object, name, NULL) : PyObject_GetAttr(object, name);

	if (!value)
		PyErr_Clear();
	Py_XDECREF(value);
	return value == Py_False;
}

/* Sets *ret to a view of an array that is no more than its bytes (has_grad says what else there could be).
 * Takes no references. Returns false, without an exception, for any other object. */
static bool read_plain(PyObject *object, const struct known *known, struct py_tensor *ret)
{
	DLTensor dl;

	memset(ret, 0, sizeof *ret);
	ret->stream = -1;
	if (known->has_grad &&
	    !(is_false(object, names.requires_grad, false) && is_false(object, names.is_neg, true)))
		return false;
	if (known->api->dltensor_from_py_object_no_sync(object, &dl) < 0 || dlpack_take(ret, &dl) < 0) {
		PyErr_Clear();
		return false;
	}
	return !known->has_grad || dl.dtype.code != DL_COMPLEX || is_false(object, names.is_conj, true);
}

/* Tensor.exchanged(object) returns a view of the object's memory, or None if its type has no table or
 * read_plain refuses it. */
PyObject *py_tensor_exchanged(PyObject *type, PyObject *object)
{
	struct py_tensor seen, *t;
	struct known known;

	(void)type;
	if (!know(object, &known) || !read_plain(object, &known, &seen))
		Py_RETURN_NONE;
	t = py_tensor_alloc();
	if (!t)
		return NULL;
	seen.ob_base = t->ob_base;
	*t = seen;
	Py_INCREF(object);
	t->owner = object;
	return (PyObject *)t;
}

/* exchange_stream(object, device) returns the CUDA stream in which the caller works on the device, or None if
 * the object's type has no table. */
PyObject *exchange_stream(PyObject *self, PyObject *args)
{
	struct known known;
	PyObject *object;
	void *stream;
	int device;

	(void)self;
	if (!PyArg_ParseTuple(args, "Oi:exchange_stream", &object, &device))
		return NULL;
	if (!know(object, &known))
		Py_RETURN_NONE;
	return known.api->current_work_stream(DEVICE_CUDA, device, &stream) < 0 ? NULL
	                                                                        : PyLong_FromVoidPtr(stream);
}

/* ---- Moves ------------------------------------------------------------------------------------------- */

struct moving {
	struct known known; /* the type of both sides */
	struct py_tensor dst, src;
	int perm[TMA_MAX_RANK];
};

static bool set_perm(struct moving *m, PyObject *axes, bool is_reversed)
{
	const int rank = m->src.rank;

	if (axes != Py_None)
		return parse_axes(axes, rank, m->perm);
	for (int d = 0; d < rank; d++)
		m->perm[d] = is_reversed ? rank - 1 - d : d;
	return true;
}

/* Returns a new array for the result, made by src's own library, or NULL without an exception. */
static PyObject *make_result(const struct moving *m, PyObject *src)
{
	PyObject *shape = m->known.has_grad ? PyTuple_New(m->src.rank) : NULL, *ret = NULL;

	for (int d = 0; shape && d < m->src.rank; d++) {
		PyObject *n = PyLong_FromLongLong(m->src.shape[m->perm[d]]);

		if (!n || PyTuple_SetItem(shape, d, n) < 0)
			Py_CLEAR(shape);
	}
	if (shape)
		ret = PyObject_CallMethodObjArgs(src, names.new_empty, shape, NULL);
	if (!ret)
		PyErr_Clear();
	Py_XDECREF(shape);
	return ret;
}

/* Reads the array that receives the result into m->dst. Returns whether it is an array of src's type, device
 * and element type that has the result's shape and can be written. */
static bool set_result(struct moving *m, PyObject *src, PyObject *out)
{
	const struct py_tensor *const from = &m->src, *const to = &m->dst;

	if (Py_TYPE(out) != Py_TYPE(src) || !read_plain(out, &m->known, &m->dst) || to->is_readonly ||
	    to->device_type != from->device_type || to->device_id != from->device_id ||
	    to->dtype != from->dtype || to->rank != from->rank)
		return false;
	for (int d = 0; d < to->rank; d++)
		if (to->shape[d] != from->shape[m->perm[d]])
			return false;
	return true;
}

static struct tma_tensor tensor_of(const struct py_tensor *t)
{
	struct tma_tensor ret = { .offset = (uint64_t)(uintptr_t)t->data,
		                  .dtype = t->dtype,
		                  .rank = t->rank,
		                  .strides = t->strides };

	memcpy(ret.shape, t->shape, (size_t)t->rank * sizeof *t->shape);
	return ret;
}

static bool launch_now(struct py_client *c, const struct moving *m, const struct tma_transform *transform)
{
	struct cuda_stream stream = { .context = cuda_context_of(m->src.device_id) };

	if (m->known.api->current_work_stream(DEVICE_CUDA, m->src.device_id, &stream.handle) < 0) {
		PyErr_Clear();
		return false;
	}
	return stream_launch(c, &stream, transform) == 0;
}

/* Moves an array in host memory. Small ones are moved with the GIL held, because to take it again would last
 * as long as to move them. Returns false, without an exception, if that fails. */
static bool move_now(struct py_client *c, const struct moving *m, const struct tma_transform *transform)
{
	const struct extent extent = py_tensor_extent(&m->src);
	int rc;

	if (!py_client_enter(c)) {
		PyErr_Clear();
		return false;
	}
	if (extent.size < KEEP_GIL_BYTES)
		rc = tma_transform(c->client, transform);
	else
		CLIENT_CALL(c, rc = tma_transform(c->client, transform));
	py_client_unlock(c);
	return rc == 0;
}

static bool run(struct py_client *c, const struct moving *m)
{
	const struct tma_tensor to = tensor_of(&m->dst), from = tensor_of(&m->src);
	const struct tma_transform transform = { .dst = &to, .src = &from, .perm = m->perm };

	return (py_tensor_is_host(&m->src) ? move_now : launch_now)(c, m, &transform);
}

/* Returns whether this file moves memory of the tensor's device type. */
static bool is_taken(const struct py_tensor *t, bool takes_host)
{
	return t->device_type == DEVICE_CUDA || (takes_host && t->device_type == DEVICE_CPU);
}

/* Client.permuted(src, axes, out, is_reversed, takes_host) permutes src into out or, if out is None, into a
 * new array, and returns the result. axes is None for no permutation; is_reversed then reverses the axes.
 * takes_host allows arrays in host memory. Arrays on a device are moved in the caller's current stream.
 * Returns None, without having moved anything, if the arguments need the general path. */
PyObject *py_client_permuted(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	struct py_client *c = (struct py_client *)self;
	PyObject *src, *result;
	struct moving m;

	if (n != 5) {
		PyErr_Format(PyExc_TypeError, "permuted() takes 5 arguments, not %zd", n);
		return NULL;
	}
	src = args[0];
	if (!c->is_local || !know(src, &m.known) || !read_plain(src, &m.known, &m.src) ||
	    !is_taken(&m.src, args[4] == Py_True) || py_tensor_count(&m.src) == 0 ||
	    !set_perm(&m, args[1], args[3] == Py_True))
		Py_RETURN_NONE;
	result = args[2];
	if (result == Py_None)
		result = make_result(&m, src);
	else
		Py_INCREF(result);
	if (result && set_result(&m, src, result) && run(c, &m))
		return result;
	Py_XDECREF(result);
	Py_RETURN_NONE;
}
