/* SPDX-License-Identifier: Apache-2.0 */
/* Translates a request into the library's structs, with the places of its tensors in regions of a client,
 * whose lock the caller holds. Without a client (c == NULL) only types, shapes and strides count. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static void set_tensor(struct tma_tensor *ret, const struct py_tensor *t, const struct tma_place *place)
{
	*ret = (struct tma_tensor){ .region = place->region,
		                    .offset = place->offset,
		                    .dtype = t->dtype,
		                    .rank = t->rank,
		                    .strides = t->strides };
	memcpy(ret->shape, t->shape, sizeof t->shape);
}

/* Sets the places of scale, bias and the tensors that amax writes. c == NULL: leaves them zero. Returns 0, or
 * -1 with an exception. */
static int place_operands(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	if (!c)
		return 0;
	if (q->scale.tensor && py_region_place(c, q->scale.tensor, false, &r->operands.scale) < 0)
		return -1;
	if (q->bias.tensor && py_region_place(c, q->bias.tensor, false, &r->operands.bias) < 0)
		return -1;
	if (q->results.scale && py_region_place(c, q->results.scale, true, &r->operands.amax_scale) < 0)
		return -1;
	return q->results.inverse ? py_region_place(c, q->results.inverse, true, &r->operands.amax_inverse)
	                          : 0;
}

static void set_amax(struct resolved *r, const struct py_request *q)
{
	r->amax = (struct tma_amax){ .block = q->amax.block,
		                     .power_of_two = q->amax.power_of_two,
		                     .least = q->amax.least };
	if (q->results.scale) {
		set_tensor(&r->amax_scale, q->results.scale, &r->operands.amax_scale);
		r->amax.scale = &r->amax_scale;
	}
	if (q->results.inverse) {
		set_tensor(&r->amax_inverse, q->results.inverse, &r->operands.amax_inverse);
		r->amax.inverse = &r->amax_inverse;
	}
	r->conversion.amax = &r->amax;
}

static void set_conversion(struct resolved *r, const struct py_request *q)
{
	r->conversion = (struct tma_conversion){ .cast = q->cast,
		                                 .scale = q->scale.is_number ? &q->scale.number : NULL,
		                                 .bias = q->bias.is_number ? &q->bias.number : NULL };
	if (q->scale.tensor) {
		set_tensor(&r->scale, q->scale.tensor, &r->operands.scale);
		r->conversion.scale_tensor = &r->scale;
	}
	if (q->bias.tensor) {
		set_tensor(&r->bias, q->bias.tensor, &r->operands.bias);
		r->conversion.bias_tensor = &r->bias;
	}
	if (q->amax.is)
		set_amax(r, q);
}

static void set_transform(struct resolved *r, const struct py_request *q)
{
	set_tensor(&r->dst, q->dst, &r->dst_place);
	set_tensor(&r->src, q->src, &r->src_place);
	set_conversion(r, q);
	r->transform = (struct tma_transform){ .dst = &r->dst,
		                               .src = &r->src,
		                               .perm = q->has_perm ? q->perm : NULL,
		                               .before = q->has_pads ? q->before : NULL,
		                               .after = q->has_pads ? q->after : NULL,
		                               .mode = q->mode,
		                               .value = q->value,
		                               .conversion = q->is_conversion ? &r->conversion : NULL };
}

/* Sets the transform's further destinations. c == NULL: they get no places. Returns 0, or -1 with an
 * exception. */
static int set_further(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	const size_t n = q->further ? (size_t)PyTuple_Size(q->further) : 0;

	if (n == 0)
		return 0;
	r->further = calloc(n, sizeof *r->further);
	if (!r->further) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		struct py_tensor *t = (struct py_tensor *)PyTuple_GetItem(q->further, (Py_ssize_t)i);
		struct tma_place place = { 0 };

		if (c && py_region_place(c, t, true, &place) < 0)
			return -1;
		set_tensor(&r->further[i], t, &place);
	}
	r->transform.further_dst = r->further;
	r->transform.n_further_dst = n;
	return 0;
}

/* Sets *ret to the place of the block that begins `bytes` bytes after element [0, ..., 0] of all, the tensor
 * that has all blocks. */
static int place_block(struct py_client *c, const struct py_tensor *all, ptrdiff_t bytes, bool writable,
                       struct tma_place *ret)
{
	if (py_region_place(c, all, writable, ret) < 0)
		return -1;
	ret->offset += (uint64_t)bytes;
	return 0;
}

/* Sets the place of the first block of dst or src. If layers is not NULL, there is one for each layer: sets
 * *ret_layers to an array of them, which r owns. Otherwise sets *ret. Returns 0, or -1 with an exception. */
static int place_side(struct py_client *c, const struct py_tensor *all, const struct py_tensor *block,
                      PyObject *layers, bool writable, struct tma_place *ret, struct tma_place **ret_layers)
{
	const Py_ssize_t n = layers ? PyTuple_Size(layers) : 0;
	const ptrdiff_t bytes = block->data - all->data;
	struct tma_place *places;

	if (!layers)
		return place_block(c, all, bytes, writable, ret);
	places = calloc((size_t)n, sizeof *places);
	if (!places) {
		PyErr_NoMemory();
		return -1;
	}
	*ret_layers = places;
	for (Py_ssize_t i = 0; i < n; i++) {
		const struct py_tensor *layer = (struct py_tensor *)PyTuple_GetItem(layers, i);

		if (place_block(c, layer, bytes, writable, &places[i]) < 0)
			return -1;
	}
	return 0;
}

/* Checks that the index is a list of numbers or, in a gather, of pairs. Returns 0, or -1 with an
 * exception. */
static int check_list(const struct py_request *q)
{
	const struct py_tensor *index = q->index;
	const bool is_list = index->rank == 1 || (index->rank == 2 && index->shape[1] == 2 && !q->is_scatter);

	if (is_list && (index->dtype == TMA_INT32 || index->dtype == TMA_INT64) &&
	    py_tensor_is_contiguous(index) && (q->is_index_shared || py_tensor_is_host(index)))
		return 0;
	PyErr_SetString(PyExc_ValueError, "index: a contiguous list of int32 or int64, or of pairs of them");
	return -1;
}

static int resolve_blocks(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	const bool has_pairs = q->index->rank == 2;

	if (place_side(c, q->all_dst, q->dst, q->dst_layers, true, &r->dst_place, &r->dst_places) < 0 ||
	    place_side(c, q->all_src, q->src, q->src_layers, false, &r->src_place, &r->src_places) < 0 ||
	    place_operands(c, q, r) < 0 || check_list(q) < 0)
		return -1;
	set_transform(r, q);
	r->blocks = (struct tma_blocks){ .transform = &r->transform,
		                         .count = (size_t)q->index->shape[0],
		                         .index_dtype = q->index->dtype,
		                         .limit = (uint64_t)(q->is_scatter ? q->dst_limit : q->src_limit),
		                         .pairs = has_pairs,
		                         .dst_limit = has_pairs ? (uint64_t)q->dst_limit : 0,
		                         .dst_step = (uint64_t)q->dst_step,
		                         .src_step = (uint64_t)q->src_step,
		                         .layers = q->layers,
		                         .dst_layer_step = (uint64_t)q->dst_layer_step,
		                         .src_layer_step = (uint64_t)q->src_layer_step,
		                         .dst_places = r->dst_places,
		                         .src_places = r->src_places };
	if (q->is_index_shared)
		return py_region_place(c, q->index, false, &r->blocks.index_at);
	r->blocks.index = q->index->data;
	return 0;
}

/* Returns whether a run of a plan has more tensors than dst and src. */
static bool has_operands(const struct py_request *q)
{
	return q->scale.tensor || q->bias.tensor || q->results.scale || q->results.inverse;
}

static void set_run(struct resolved *r, const struct py_request *q, struct tma_item *ret)
{
	*ret = (struct tma_item){ .plan = q->plan->plan,
		                  .dst = r->dst_place,
		                  .src = r->src_place,
		                  .operands = has_operands(q) ? &r->operands : NULL };
}

/* Prepares a run of a plan. One with more tensors than dst and src runs as an item, because tma_plan_run
 * takes only these two. Returns 0, or -1 with an exception. */
static int resolve_run(const struct py_request *q, struct resolved *r)
{
	if (!has_operands(q))
		return 0;
	r->items = calloc(1, sizeof *r->items);
	if (!r->items) {
		PyErr_NoMemory();
		return -1;
	}
	set_run(r, q, r->items);
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
			set_run(&r->each[i], item, &r->items[i]);
		else
			r->items[i] = (struct tma_item){ .transform = &r->each[i].transform };
	}
	return 0;
}

static int resolve_reshard(struct py_client *c, const struct py_request *q, struct resolved *r)
{
	const size_t n = (size_t)PyTuple_Size(q->items);
	const int64_t *start = q->start;

	r->slices = calloc(n ? n : 1, sizeof *r->slices);
	if (!r->slices) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		const struct py_tensor *t = (struct py_tensor *)PyTuple_GetItem(q->items, (Py_ssize_t)i);
		struct tma_place place = { 0 };

		if (py_region_place(c, t, i < q->n_destinations, &place) < 0)
			return -1;
		set_tensor(&r->slices[i].tensor, t, &place);
		r->slices[i].start = start;
		start += t->rank;
		r->n_slices++;
	}
	r->reshard = (struct tma_reshard){ .destinations = r->slices,
		                           .n_destinations = q->n_destinations,
		                           .sources = r->slices + q->n_destinations,
		                           .n_sources = n - q->n_destinations,
		                           .shape = q->has_shape ? q->shape : NULL };
	return 0;
}

int py_request_resolve(struct py_client *c, struct py_request *q, struct resolved *r)
{
	int rc = 0;

	memset(r, 0, sizeof *r);
	if (q->kind == REQUEST_ITEMS)
		rc = resolve_items(c, q, r);
	else if (q->kind == REQUEST_RESHARD)
		rc = resolve_reshard(c, q, r);
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
		if (rc == 0 && !is_blocks)
			rc = place_operands(c, q, r);
		if (rc == 0 && is_blocks)
			rc = resolve_blocks(c, q, r);
		else if (rc == 0 && q->kind == REQUEST_PLAN)
			rc = resolve_run(q, r);
		else if (rc == 0) {
			set_transform(r, q);
			rc = set_further(c, q, r);
		}
	}
	if (rc < 0)
		resolved_deinit(r);
	return rc;
}

void resolved_deinit(struct resolved *r)
{
	for (size_t i = 0; i < r->n_items; i++)
		resolved_deinit(&r->each[i]);
	free(r->further);
	free(r->items);
	free(r->each);
	free(r->dst_places);
	free(r->src_places);
	r->further = NULL;
	r->dst_places = NULL;
	r->src_places = NULL;
	free(r->slices);
	r->slices = NULL;
	r->n_slices = 0;
	r->items = NULL;
	r->each = NULL;
	r->n_items = 0;
}
