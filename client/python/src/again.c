/* SPDX-License-Identifier: Apache-2.0 */
/* Implements Request.again, which makes a request for blocks like an earlier one that uses other memory. It
 * is for callers that move the same layers piece by piece: the arguments that stay the same are not passed
 * and parsed again. */
#include "core.h"

#include <string.h>

/* Returns a view of other memory with the element type, shape and strides of t. Its element [0, ..., 0] is at
 * data, and `memory` is the Tensor that has the memory. Returns NULL with an exception. */
static struct py_tensor *laid_out_as(const struct py_tensor *t, PyObject *memory, char *data)
{
	const struct py_tensor *there = (struct py_tensor *)memory;
	struct py_tensor *ret = py_tensor_alloc();

	if (!ret)
		return NULL;
	ret->data = data;
	ret->dtype = t->dtype;
	ret->rank = t->rank;
	memcpy(ret->shape, t->shape, sizeof ret->shape);
	memcpy(ret->strides, t->strides, sizeof ret->strides);
	ret->device_type = there->device_type;
	ret->device_id = there->device_id;
	ret->is_readonly = there->is_readonly;
	Py_INCREF(memory);
	ret->owner = memory;
	return ret;
}

/* Returns whether two tensors have the same element type and shape, and the same strides in the dimensions
 * with more than one index. */
static bool are_laid_out_alike(const struct py_tensor *a, const struct py_tensor *b)
{
	if (a->dtype != b->dtype || a->rank != b->rank)
		return false;
	for (int d = 0; d < a->rank; d++)
		if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->strides[d] != b->strides[d]))
			return false;
	return true;
}

/* Makes the two tensors of a side in `memory`: *ret_all, whose element [0, ..., 0] is at data, and
 * *ret_block, its block at the lowest address. all and block are those of the earlier request. Returns 0, or
 * -1 with an exception. */
static int place_side(const struct py_tensor *all, const struct py_tensor *block, PyObject *memory,
                      char *data, struct py_tensor **ret_all, struct py_tensor **ret_block)
{
	*ret_all = laid_out_as(all, memory, data);
	*ret_block = laid_out_as(block, memory, data + (block->data - all->data));
	return *ret_all && *ret_block ? 0 : -1;
}

static int place_bytes(const struct py_tensor *all, const struct py_tensor *block, PyObject *bytes,
                       struct py_tensor **ret_all, struct py_tensor **ret_block)
{
	const struct py_tensor *t = (struct py_tensor *)bytes;
	const struct extent extent = py_tensor_extent(all);

	if (tma_dtype_size(t->dtype) != 1 || !py_tensor_is_contiguous(t) ||
	    (uint64_t)py_tensor_count(t) < extent.size) {
		PyErr_Format(PyExc_ValueError, "bytes: it is contiguous, and has at least %llu bytes",
		             (unsigned long long)extent.size);
		return -1;
	}
	return place_side(all, block, bytes, t->data + (all->data - extent.start), ret_all, ret_block);
}

static int place_layers(const struct py_tensor *all, const struct py_tensor *block, PyObject *layers,
                        uint32_t n, struct py_tensor **ret_all, struct py_tensor **ret_block)
{
	PyObject *first;

	if (PyTuple_Size(layers) != (Py_ssize_t)n) {
		PyErr_Format(PyExc_ValueError, "layers: %zd; the request has %u", PyTuple_Size(layers), n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < PyTuple_Size(layers); i++) {
		PyObject *layer = PyTuple_GetItem(layers, i);

		if (Py_TYPE(layer) != core.tensor_type ||
		    !are_laid_out_alike(all, (struct py_tensor *)layer)) {
			PyErr_Format(PyExc_ValueError,
			             "layers[%zd]: it is not laid out as those of the request", i);
			return -1;
		}
	}
	first = PyTuple_GetItem(layers, 0);
	return place_side(all, block, first, ((struct py_tensor *)first)->data, ret_all, ret_block);
}

static PyObject *shared(PyObject *object)
{
	Py_XINCREF(object);
	return object;
}

/* Request.again(index, bytes, layers) returns a request like this one for another list, `index`. The side
 * whose blocks the list selects must have a tuple of layers, which `layers` replaces. The other side must
 * have a step from layer to layer; it is placed in the memory of `bytes`. */
PyObject *py_request_again(PyObject *self, PyObject *args)
{
	const struct py_request *like = (struct py_request *)self;
	PyObject *index, *bytes, *layers;
	struct py_request *q;
	int rc;

	if (!PyArg_ParseTuple(args, "O!O!O!:again", core.tensor_type, &index, core.tensor_type, &bytes,
	                      &PyTuple_Type, &layers))
		return NULL;
	if (like->kind != REQUEST_BLOCKS || !(like->is_scatter ? like->dst_layers : like->src_layers) ||
	    (like->is_scatter ? like->src_layers : like->dst_layers)) {
		PyErr_SetString(
		    PyExc_TypeError,
		    "again: the request has to be of blocks between a list of layers and one array");
		return NULL;
	}
	if (like->is_index_shared || !are_laid_out_alike(like->index, (struct py_tensor *)index)) {
		PyErr_SetString(PyExc_ValueError,
		                "index: a list of int64 that is sent, as long as that of the request");
		return NULL;
	}
	q = py_request_alloc(REQUEST_BLOCKS);
	if (!q)
		return NULL;
	q->has_perm = like->has_perm;
	memcpy(q->perm, like->perm, sizeof q->perm);
	q->is_conversion = like->is_conversion;
	q->cast = like->cast;
	q->scale = like->scale;
	q->bias = like->bias;
	shared((PyObject *)q->scale.tensor);
	shared((PyObject *)q->bias.tensor);
	q->is_scatter = like->is_scatter;
	q->index = (struct py_tensor *)shared(index);
	q->dst_limit = like->dst_limit;
	q->src_limit = like->src_limit;
	q->dst_step = like->dst_step;
	q->src_step = like->src_step;
	q->layers = like->layers;
	q->dst_layer_step = like->dst_layer_step;
	q->src_layer_step = like->src_layer_step;
	*(q->is_scatter ? &q->dst_layers : &q->src_layers) = shared(layers);
	if (q->is_scatter)
		rc = place_layers(like->all_dst, like->dst, layers, q->layers, &q->all_dst, &q->dst) < 0
		         ? -1
		         : place_bytes(like->all_src, like->src, bytes, &q->all_src, &q->src);
	else
		rc = place_layers(like->all_src, like->src, layers, q->layers, &q->all_src, &q->src) < 0
		         ? -1
		         : place_bytes(like->all_dst, like->dst, bytes, &q->all_dst, &q->dst);
	if (rc == 0)
		return (PyObject *)q;
	Py_DECREF((PyObject *)q);
	return NULL;
}
