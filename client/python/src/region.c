/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the type Region, memory that this process shares with the service and that Python sees as a buffer,
 * and finds the places of tensors in regions. */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/client.h"

/* The data for the release of a region after its Region object is gone. It is allocated with the object,
 * because a destructor cannot fail. The memory is unmapped only after the client has released the region:
 * otherwise another mapping could get its addresses, and tma_region_find would take it for the region. */
struct remains {
	struct py_client *client;
	tma_region *region;
	void *address; /* start of the mapping to remove; NULL: none */
	size_t size;
	/* The Region object holds the mmap that has the memory, so that nobody unmaps it. The library's
	 * region points to this flag (tma_region.kept). */
	atomic_bool is_kept;
};

struct py_region *py_region_alloc(struct py_client *c)
{
	struct py_region *r = (struct py_region *)PyType_GenericAlloc(core.region_type, 0);

	if (!r)
		return NULL;
	Py_INCREF((PyObject *)c);
	r->client = c;
	r->remains = calloc(1, sizeof *r->remains);
	if (r->remains)
		return r;
	Py_DECREF((PyObject *)r);
	return (struct py_region *)PyErr_NoMemory();
}

/* The Region object takes over the mapping, because arrays in it may outlive the client. */
PyObject *py_region_create(struct py_client *c, uint64_t size, const char *device, bool is_shared)
{
	struct py_region *r = py_region_alloc(c);
	int rc;

	if (!r)
		return NULL;
	if (!py_client_enter(c)) {
		Py_DECREF(r);
		return NULL;
	}
	CLIENT_CALL(c, rc = tma_region_create_on(c->client, device, TMA_REGION_MEMFD, size, &r->region));
	if (rc == 0) {
		if (is_shared)
			region_share(r->region);
		r->address = r->region->data;
		r->region->data = NULL;
		r->is_mapped = true;
		r->kind = tma_region_kind(r->region);
		r->size = size;
	}
	rc = py_client_check(c, rc);
	py_client_unlock(c);
	if (rc < 0) {
		Py_DECREF(r);
		return NULL;
	}
	return (PyObject *)r;
}

/* Client.create(size, device=None, is_shared=False) makes a region of zeroed host memory. */
PyObject *py_client_create(PyObject *self, PyObject *args)
{
	const char *device = NULL;
	uint64_t size;
	int is_shared = 0;

	if (!PyArg_ParseTuple(args, "O&|zp:create", parse_u64, &size, &device, &is_shared))
		return NULL;
	return py_region_create((struct py_client *)self, size, device, is_shared);
}

/* Takes the buffer of a Python mmap, which can be neither closed nor resized until the buffer is released.
 * Returns NULL with an exception. */
static Py_buffer *hold(PyObject *mapping)
{
	Py_buffer *b = PyMem_Malloc(sizeof *b);

	if (!b)
		return (Py_buffer *)PyErr_NoMemory();
	if (PyObject_GetBuffer(mapping, b, PyBUF_SIMPLE) == 0)
		return b;
	PyMem_Free(b);
	return NULL;
}

static void let_go_of_mapping(struct py_region *r)
{
	if (r->mapping) {
		PyBuffer_Release(r->mapping);
		PyMem_Free(r->mapping);
	}
	r->mapping = NULL;
}

static bool has(const Py_buffer *b, struct extent e)
{
	const char *start = b->buf;

	return e.start >= start && e.start + e.size <= start + b->len;
}

/* Client.register(tensor, readonly, mapping=None) makes a region of a tensor's memory. mapping is the mmap
 * object that has this memory. The region holds that object's buffer, so that no use of the memory has to ask
 * the kernel whether it is still mapped. */
PyObject *py_client_register(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	unsigned flags = 0;
	struct extent extent;
	PyObject *object, *mapping = Py_None;
	struct py_tensor *t;
	struct py_region *r;
	int readonly, rc;

	if (!PyArg_ParseTuple(args, "O!p|O:register", core.tensor_type, &object, &readonly, &mapping))
		return NULL;
	t = (struct py_tensor *)object;
	extent = py_tensor_extent(t);
	if (readonly)
		flags |= TMA_REGION_READ_ONLY;
	r = py_region_alloc(c);
	if (!r)
		return NULL;
	if (py_tensor_is_host(t))
		slabs_retire(extent.start, extent.size);
	if (mapping != Py_None)
		r->mapping = hold(mapping);
	if ((mapping != Py_None && !r->mapping) || !py_client_enter(c)) {
		Py_DECREF(r);
		return NULL;
	}
	if (py_tensor_is_host(t))
		CLIENT_CALL(c, rc = tma_region_from_host_ptr(c->client, extent.start, extent.size, flags,
		                                             &r->region));
	else
		CLIENT_CALL(c, rc = tma_region_from_device_ptr(c->client, extent.start, extent.size, flags,
		                                               &r->region));
	if (rc == 0) {
		r->address = py_tensor_is_host(t) ? extent.start : NULL;
		r->size = extent.size;
		r->is_readonly = readonly;
		r->kind = tma_region_kind(r->region);
		Py_INCREF(object);
		r->tensor = t;
	}
	if (rc == 0 && r->mapping && has(r->mapping, extent)) {
		atomic_store(&r->remains->is_kept, true);
		r->region->kept = &r->remains->is_kept;
	}
	rc = py_client_check(c, rc);
	py_client_unlock(c);
	if (rc < 0) {
		Py_DECREF(r);
		return NULL;
	}
	return (PyObject *)r;
}

static void release(void *arg)
{
	struct remains *remains = arg;

	if (remains->client->client)
		tma_region_release(remains->region);
	if (remains->address)
		munmap(remains->address, remains->size);
	free(remains);
}

/* Has the region released as soon as possible. From here on the program may unmap the memory before that
 * happens, so is_kept is cleared, and the library asks the kernel again whether it is mapped. */
static void leave(struct remains *remains, struct py_client *c, tma_region *region, char *address,
                  uint64_t size)
{
	remains->client = c;
	remains->region = region;
	remains->address = address;
	remains->size = size;
	atomic_store(&remains->is_kept, false);
	py_client_release(c, release, remains);
}

void py_region_leave(struct py_client *c, tma_region *region, char *address, uint64_t size)
{
	struct remains *remains = calloc(1, sizeof *remains);

	if (remains) /* if memory is exhausted, the region stays until the process ends */
		leave(remains, c, region, address, size);
}

static void let_go(struct py_region *r)
{
	struct py_tensor *const tensor = r->tensor;
	struct remains *const remains = r->remains;
	tma_region *const region = r->region;
	struct set_aside aside;

	exception_set_aside(&aside);
	if (r->device_address && r->client->pid == getpid()) {
		Py_BEGIN_ALLOW_THREADS cuda_host_retire(r->address);
		Py_END_ALLOW_THREADS
	}
	r->device_address = 0;
	r->remains = NULL;
	r->region = NULL;
	if (region && !r->block)
		leave(remains, r->client, region, r->is_mapped ? r->address : NULL, r->size);
	else
		free(remains);
	if (region && r->block && r->client->pid == getpid()) /* a child leaves its parent's slabs alone */
		block_free(r->block);
	let_go_of_mapping(r);
	r->tensor = NULL;
	Py_XDECREF((PyObject *)tensor);
	exception_put_back(&aside);
}

static PyObject *py_region_release(PyObject *self, PyObject *unused)
{
	struct py_region *r = (struct py_region *)self;

	(void)unused;
	if (r->is_mapped) {
		PyErr_SetString(PyExc_ValueError,
		                "memory of the region's own is released with the last array in it");
		return NULL;
	}
	let_go(r);
	Py_RETURN_NONE;
}

static void py_region_dealloc(PyObject *self)
{
	struct py_region *r = (struct py_region *)self;
	PyTypeObject *type = Py_TYPE(self);

	let_go(r);
	Py_XDECREF((PyObject *)r->client);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- Its memory ------------------------------------------------------------------------------------ */

/* Returns the object that keeps the region's memory alive; borrowed. */
static PyObject *memory_of(struct py_region *r)
{
	return r->is_mapped ? (PyObject *)r : (PyObject *)r->tensor;
}

static int py_region_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct py_region *r = (struct py_region *)self;

	if (!r->address || !r->region) {
		view->obj = NULL;
		PyErr_SetString(PyExc_BufferError,
		                r->region ? "device memory has no buffer" : "the region was released");
		return -1;
	}
	return PyBuffer_FillInfo(view, memory_of(r), r->address, (Py_ssize_t)r->size, r->is_readonly, flags);
}

/* Region.tensor(offset, dtype, shape, strides) returns a tensor in the region's memory. offset is in bytes,
 * strides are in elements. */
static PyObject *make_tensor(PyObject *self, PyObject *args)
{
	struct py_region *r = (struct py_region *)self;
	PyObject *shape, *strides;
	uint64_t offset;
	struct py_tensor *t;
	struct extent extent;
	const char *name;
	int n = 0, dtype;

	if (!PyArg_ParseTuple(args, "O&sOO:tensor", parse_u64, &offset, &name, &shape, &strides))
		return NULL;
	dtype = tma_dtype_parse(name);
	if (dtype < 0 || !r->address || !r->region) {
		PyErr_SetString(PyExc_ValueError,
		                dtype < 0 ? "dtype: tmad has no such element type" : "no host memory");
		return NULL;
	}
	t = py_tensor_alloc();
	if (!t)
		return NULL;
	t->dtype = (enum tma_dtype)dtype;
	t->is_readonly = r->is_readonly;
	if (parse_sizes(shape, "shape", t->shape, &t->rank) < 0 ||
	    parse_sizes(strides, "strides", t->strides, &n) < 0)
		goto err;
	if (n != t->rank || offset > r->size)
		goto err_outside;
	t->data = r->address + offset;
	if (py_tensor_check(t) < 0)
		goto err;
	extent = py_tensor_extent(t);
	if (extent.size && (extent.start < r->address || extent.start + extent.size > r->address + r->size))
		goto err_outside;
	t->owner = memory_of(r);
	Py_INCREF(t->owner);
	return (PyObject *)t;

err_outside:
	PyErr_SetString(PyExc_ValueError, "the tensor lies outside of the region");
err:
	Py_DECREF((PyObject *)t);
	return NULL;
}

static PyObject *get_size(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct py_region *)self)->size);
}

static PyObject *get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((struct py_region *)self)->address);
}

static PyObject *get_kind(PyObject *self, void *unused)
{
	static const char *const kinds[] = { "released", "memfd", "cuda_ipc", "cuda_fd", "cuda_pool" };
	const struct py_region *r = (struct py_region *)self;

	(void)unused;
	return PyUnicode_FromString(kinds[r->region ? r->kind : 0]);
}

static PyObject *py_region_repr(PyObject *self)
{
	const struct py_region *r = (struct py_region *)self;
	PyObject *kind = get_kind(self, NULL), *text = NULL;

	if (kind && r->region && r->address)
		text = PyUnicode_FromFormat("<tmaclient.Region: %llu bytes of %U at %p%s>",
		                            (unsigned long long)r->size, kind, r->address,
		                            r->is_readonly ? ", read-only" : "");
	else if (kind)
		text =
		    PyUnicode_FromFormat("<tmaclient.Region: %llu bytes, %U%s>", (unsigned long long)r->size,
		                         kind, r->region && r->is_readonly ? ", read-only" : "");
	Py_XDECREF(kind);
	return text;
}

static PyGetSetDef py_region_getset[] = {
	{ "size", get_size, NULL, "Bytes.", NULL },
	{ "address", get_address, NULL, "Address in this process; 0 for device memory.", NULL },
	{ "kind", get_kind, NULL, "Kind of memory, such as \"memfd\".", NULL },
	{ 0 },
};

static PyMethodDef py_region_methods[] = {
	{ "tensor", make_tensor, METH_VARARGS,
	  "tensor(offset, dtype, shape, strides)\n--\n\nA tensor in its memory, from a byte on." },
	{ "release", py_region_release, METH_NOARGS, "release()\n--\n\nEnds the sharing." },
	{ 0 },
};

PyDoc_STRVAR(py_region_doc,
             "Memory that is shared with the service: a buffer, if it is host memory. It is released with\n"
             "the last object that uses it.");

static PyType_Slot py_region_slots[] = {
	{ Py_tp_repr, py_region_repr },
	{ Py_tp_doc, (void *)py_region_doc },
	{ Py_tp_dealloc, py_region_dealloc },
	{ Py_tp_getset, py_region_getset },
	{ Py_tp_methods, py_region_methods },
	{ Py_bf_getbuffer, py_region_getbuffer },
	{ 0 },
};

PyType_Spec py_region_spec = {
	.name = "tmaclient._core.Region",
	.basicsize = sizeof(struct py_region),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = py_region_slots,
};

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Sets *ret to the place of a tensor without elements. Caller holds the lock. Returns 0, or -1 with an
 * exception. */
static int place_nothing(struct py_client *c, struct tma_place *ret)
{
	int rc = 0;

	if (!c->nothing)
		CLIENT_CALL(c, rc = tma_region_create_kind(c->client, TMA_REGION_MEMFD, 64, &c->nothing));
	if (py_client_check(c, rc) < 0)
		return -1;
	*ret = (struct tma_place){ .region = c->nothing };
	return 0;
}

/* Sets *ret to the place of an extent of host memory. Caller holds the lock. Returns 0, or -1 with an
 * exception if no region has all of it. */
static int find_shared(struct py_client *c, const struct py_tensor *t, struct extent extent,
                       struct tma_place *ret)
{
	if (tma_region_find(c->client, extent.start, extent.size, ret) == 0)
		return 0;
	PyErr_Format(
	    PyExc_ValueError,
	    "an array at %p is not in shared memory; make it with empty() or zeros(), or register() it",
	    t->data);
	return -1;
}

int py_region_place(struct py_client *c, const struct py_tensor *t, bool writable, struct tma_place *ret)
{
	struct extent extent = py_tensor_extent(t);

	if (writable && t->is_readonly) {
		PyErr_SetString(PyExc_ValueError, "out: the array is read-only");
		return -1;
	}
	if (extent.size == 0)
		return place_nothing(c, ret);
	if (c->is_local) { /* A client of "local:" takes an address in place of a region. */
		*ret = (struct tma_place){ .offset = (uint64_t)(uintptr_t)extent.start };
	} else if (!py_tensor_is_host(t)) {
		if (segments_find(c, t, extent, ret) < 0)
			return -1;
	} else if (find_shared(c, t, extent, ret) < 0)
		return -1;
	else
		c->has_placed_host = true;
	ret->offset += (uint64_t)(t->data - extent.start);
	return 0;
}

/* Client.is_shared(tensor) returns whether a request can use the tensor's memory without copying it to shared
 * memory first. Device memory counts as shared, because requests register it. */
PyObject *py_client_is_shared(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	struct tma_place place;
	struct extent extent;
	PyObject *object;
	bool is_shared = true;

	if (!PyArg_ParseTuple(args, "O!:is_shared", core.tensor_type, &object) || !py_client_lock(c))
		return NULL;
	extent = py_tensor_extent((struct py_tensor *)object);
	if (py_tensor_is_host((struct py_tensor *)object) && extent.size)
		is_shared = c->is_local || tma_region_find(c->client, extent.start, extent.size, &place) == 0;
	py_client_unlock(c);
	return PyBool_FromLong(is_shared);
}
