/* SPDX-License-Identifier: Apache-2.0 */
/* Divides what is copied between host memory and a device into chunks, each a box of a tensor or some blocks
 * of some layers. The CPU's engine moves each chunk between host memory and a slot of pinned memory. */
#include "packing.h"

#include <stdlib.h>

/* Least value of the limit on the bytes of a chunk. The limit is ENGINE_CHUNK_BYTES, or less if there would
 * otherwise be fewer than WANTED_CHUNKS chunks, so that packing and copying overlap in that case, too. A test
 * sets a smaller value. */
#ifndef LEAST_CHUNK_BYTES
#define LEAST_CHUNK_BYTES (64 << 10)
#endif
#define WANTED_CHUNKS 8

static uint64_t chunk_limit(uint64_t bytes)
{
	const uint64_t share = bytes / WANTED_CHUNKS;

	if (share < LEAST_CHUNK_BYTES)
		return LEAST_CHUNK_BYTES;
	return share < ENGINE_CHUNK_BYTES ? share : ENGINE_CHUNK_BYTES;
}

/* ---- Layouts ------------------------------------------------------------------------------------------ */

/* Returns the dimension with the smallest stride among those that are not done and have more than one index,
 * or -1 if there is none. */
static int next_dimension(const struct tensor_layout *layout, const bool *is_done)
{
	int least = -1;

	for (int d = 0; d < layout->rank; d++)
		if (!is_done[d] && layout->shape[d] > 1 &&
		    (least < 0 || llabs(layout->stride[d]) < llabs(layout->stride[least])))
			least = d;
	return least;
}

static bool is_gapless(const struct tensor_layout *layout)
{
	bool is_done[TENSOR_MAX_RANK] = { false };
	int64_t reach = 1; /* elements that the dimensions so far cover without a gap */
	int d;

	while ((d = next_dimension(layout, is_done)) >= 0) {
		const int64_t stride = llabs(layout->stride[d]);

		if (stride > reach)
			return false;
		reach += (layout->shape[d] - 1) * stride;
		is_done[d] = true;
	}
	return true;
}

static void init_as_it_is(struct local_packed *ret, const struct tensor_layout *tensor, uint64_t address)
{
	const struct tensor_extent extent = tensor_extent(tensor);

	ret->bytes = (uint64_t)(extent.high - extent.low);
	ret->first = (uint64_t)-extent.low;
	ret->address = address - ret->first;
	ret->layout = (struct tensor_layout){
		.dtype = DTYPE_UINT8, .rank = 1, .shape = { (int64_t)ret->bytes }, .stride = { 1 }
	};
	for (int d = 0; d < tensor->rank; d++)
		ret->stride[d] = tensor->stride[d];
}

static void init_in_order(struct local_packed *ret, const struct tensor_layout *tensor, uint64_t address)
{
	int64_t count = 1;

	ret->first = 0;
	ret->address = address;
	ret->layout = *tensor;
	for (int d = tensor->rank - 1; d >= 0; d--) {
		if (tensor->stride[d] == 0)
			ret->layout.shape[d] = 1;
		ret->stride[d] = tensor->stride[d] == 0 ? 0 : count;
		count *= ret->layout.shape[d];
	}
	ret->bytes = (uint64_t)count * dtype_size(tensor->dtype);
}

void local_packed_init(struct local_packed *ret, const struct tensor_layout *tensor, uint64_t address)
{
	ret->is_gapless = is_gapless(tensor);
	if (ret->is_gapless)
		init_as_it_is(ret, tensor, address);
	else
		init_in_order(ret, tensor, address);
}

/* ---- The CPU ------------------------------------------------------------------------------------------ */

static void set_order(struct tensor_layout *layout)
{
	int64_t count = 1;

	for (int d = layout->rank - 1; d >= 0; d--) {
		layout->stride[d] = count;
		count *= layout->shape[d];
	}
}

/* A move of the CPU's engine between a tensor in host memory and a chunk, which has the elements in C
 * order. */
struct move_here {
	struct tensor_layout layout;  /* layout in host memory */
	uint64_t host, chunk;         /* addresses of the tensor and of the chunk */
	struct engine_blocks *blocks; /* NULL: one block is moved; otherwise all of these */
};

static struct plan_places places_of(const struct engine_blocks *blocks, uint64_t dst, uint64_t src)
{
	return blocks ? plan_places_of_many(blocks_bits(blocks, dst, src)) : plan_places(dst, src);
}

static int run_here(struct local_session *session, const struct move_here *move, enum local_way way,
                    uint64_t host_threads, struct error *err)
{
	const uint64_t dst = way == LOCAL_IN ? move->chunk : move->host;
	const uint64_t src = way == LOCAL_IN ? move->host : move->chunk;
	struct engine *engine = local_stream_here(&session->stream, err);
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1, .dst_is_checked = true };
	struct local_job job = { .is_counted = false };
	struct engine_plan *plan;
	int r;

	if (!engine)
		return err->status;
	spec.dst = spec.src = move->layout;
	set_order(way == LOCAL_IN ? &spec.dst : &spec.src);
	r = engine_prepare(engine, &spec, places_of(move->blocks, dst, src), &plan, err);
	if (r < 0)
		return r;
	job.job = (struct engine_job){ .move = { .transform = engine_plan_transform(plan),
		                                 .plan = plan,
		                                 .dst = engine->own,
		                                 .src = engine->own,
		                                 .dst_offset = dst - engine->own->base,
		                                 .src_offset = src - engine->own->base },
		                       .blocks = move->blocks,
		                       .share.host_threads = (uint32_t)host_threads };
	r = local_stream_run_here(&session->stream, &job, err);
	engine_plan_unref(plan);
	return r;
}

/* ---- Boxes of a tensor -------------------------------------------------------------------------------- */

/* A division of a packed tensor into boxes. A box has up to `per` indices of dimension dim, one index of each
 * earlier dimension, and all of each later one. Boxes follow each other in C order, and each is a chunk. */
struct boxes {
	const struct local_packed *packed;
	int dim;
	int64_t per;          /* maximum number of indices of that dimension in a box */
	uint64_t inner_bytes; /* bytes of one index of that dimension */
	uint64_t n_along;     /* boxes along that dimension */
	uint64_t n;
};

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b > 0);
}

static struct boxes boxes_of(const struct local_packed *packed, uint64_t limit)
{
	const struct tensor_layout *layout = &packed->layout;
	struct boxes ret = { .packed = packed, .per = 1, .inner_bytes = packed->bytes, .n_along = 1, .n = 1 };
	uint64_t outer = 1;

	if (layout->rank == 0)
		return ret;
	for (ret.dim = 0;; ret.dim++) {
		ret.inner_bytes /= (uint64_t)layout->shape[ret.dim];
		if (ret.inner_bytes <= limit)
			break;
		outer *= (uint64_t)layout->shape[ret.dim];
	}
	ret.per = (int64_t)(limit / ret.inner_bytes);
	ret.n_along = divide_up((uint64_t)layout->shape[ret.dim], (uint64_t)ret.per);
	ret.n = outer * ret.n_along;
	return ret;
}

/* Returns the extent of box i along dimension boxes->dim. */
static int64_t box_extent(const struct boxes *boxes, uint64_t i)
{
	const int64_t from = (int64_t)(i % boxes->n_along) * boxes->per;
	const int64_t left =
	    boxes->packed->layout.rank > 0 ? boxes->packed->layout.shape[boxes->dim] - from : 1;

	return left < boxes->per ? left : boxes->per;
}

static uint64_t box_bytes(const struct boxes *boxes, uint64_t i)
{
	return (uint64_t)box_extent(boxes, i) * boxes->inner_bytes;
}

/* Sets the layout and the host address of box i. */
static void box_at(const struct boxes *boxes, uint64_t i, struct move_here *ret)
{
	const struct tensor_layout *layout = &boxes->packed->layout;
	uint64_t outer = i / boxes->n_along;
	int64_t at;

	ret->layout = *layout;
	ret->host = boxes->packed->address;
	if (layout->rank == 0)
		return;
	at = (int64_t)(i % boxes->n_along) * boxes->per * layout->stride[boxes->dim];
	for (int d = boxes->dim - 1; d >= 0; d--) {
		at += (int64_t)(outer % (uint64_t)layout->shape[d]) * layout->stride[d];
		outer /= (uint64_t)layout->shape[d];
		ret->layout.shape[d] = 1;
	}
	ret->layout.shape[boxes->dim] = box_extent(boxes, i);
	ret->host += (uint64_t)(at * (int64_t)dtype_size(layout->dtype));
}

/* The session whose engine packs chunks, and the direction in which the chunks travel. */
struct packer {
	struct local_session *session;
	enum local_way way;
	uint64_t host_threads;
};

struct box_transfer {
	struct engine_transfer transfer; /* Must be first. */
	struct packer packer;
	struct boxes boxes;
};

static uint64_t box_chunk_bytes(const struct engine_transfer *transfer, uint64_t i)
{
	return box_bytes(&((const struct box_transfer *)transfer)->boxes, i);
}

static int pack(const struct packer *packer, struct move_here *move, void *chunk, struct error *err)
{
	move->chunk = (uint64_t)(uintptr_t)chunk;
	return run_here(packer->session, move, packer->way, packer->host_threads, err);
}

static int pack_box(struct engine_transfer *transfer, uint64_t i, void *chunk, struct error *err)
{
	struct box_transfer *of = (struct box_transfer *)transfer;
	struct move_here move = { .blocks = NULL };

	box_at(&of->boxes, i, &move);
	return pack(&of->packer, &move, chunk, err);
}

static int bring(struct packer *packer, struct engine_transfer *transfer, struct error *err)
{
	const struct local_stream *stream = &packer->session->stream;

	if (packer->way == LOCAL_IN)
		return engine_bring_in(stream->device, transfer, stream->cuda_stream, err);
	return engine_bring_out(stream->device, transfer, stream->cuda_stream, err);
}

int local_bring(struct local_session *session, const struct local_packed *packed, uint64_t device,
                enum local_way way, uint64_t host_threads, struct error *err)
{
	struct box_transfer of = {
		.transfer = { .address = device, .chunk_bytes = box_chunk_bytes, .pack = pack_box },
		.packer = { session, way, host_threads },
		.boxes = boxes_of(packed, chunk_limit(packed->bytes)),
	};

	of.transfer.n_chunks = of.boxes.n;
	return bring(&of.packer, &of.transfer, err);
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

/* A transfer of blocks. A chunk has some entries of one layer, all entries of some layers, or a box of a
 * block that is larger than a chunk. */
struct block_transfer {
	struct engine_transfer transfer; /* Must be first. */
	struct packer packer;
	const struct local_packed_blocks *packed;
	struct boxes boxes; /* boxes of a block, if it is larger than a chunk */
	uint64_t entries;   /* maximum number of entries in a chunk */
	uint32_t layers;    /* maximum number of layers in a chunk */
	uint64_t n_along;   /* chunks along the entries of a layer */
};

/* The part of a list that one chunk covers: n entries from `entry` on, in `layers` layers from `layer` on. */
struct run {
	uint64_t entry, n;
	uint32_t layer, layers;
};

static struct run run_at(const struct block_transfer *of, uint64_t i)
{
	const struct local_packed_blocks *packed = of->packed;
	struct run run = { .entry = i % of->n_along * of->entries,
		           .layer = (uint32_t)(i / of->n_along) * of->layers };

	run.n = packed->n - run.entry < of->entries ? packed->n - run.entry : of->entries;
	run.layers = packed->layers - run.layer < of->layers ? packed->layers - run.layer : of->layers;
	return run;
}

static uint64_t run_chunk_bytes(const struct engine_transfer *transfer, uint64_t i)
{
	const struct block_transfer *of = (const struct block_transfer *)transfer;
	const struct run run = run_at(of, i);

	return run.n * run.layers * of->packed->block.bytes;
}

static uint64_t layer_at(const struct local_packed_blocks *packed, uint32_t layer)
{
	return packed->side.layers ? (uint64_t)packed->side.layers[layer] : layer * packed->side.layer_step;
}

static int pack_run(struct engine_transfer *transfer, uint64_t i, void *chunk, struct error *err)
{
	struct block_transfer *of = (struct block_transfer *)transfer;
	const struct local_packed_blocks *packed = of->packed;
	const struct run run = run_at(of, i);
	const bool is_out = of->packer.way == LOCAL_OUT;
	const struct engine_blocks_side slot = { .step = packed->block.bytes,
		                                 .layer_step = run.n * packed->block.bytes };
	struct engine_blocks_side host = packed->side;
	struct engine_blocks blocks = { .n = run.n,
		                        .layers = run.layers,
		                        .scatter = is_out,
		                        .index_bytes = sizeof *packed->list,
		                        .limit = packed->limit,
		                        .index = packed->list + run.entry };
	struct move_here move = { .layout = packed->block.layout,
		                  .host = packed->block.address,
		                  .blocks = &blocks };

	if (host.layers)
		host.layers += run.layer;
	else
		move.host += layer_at(packed, run.layer);
	blocks.dst = is_out ? host : slot;
	blocks.src = is_out ? slot : host;
	return pack(&of->packer, &move, chunk, err);
}

static uint64_t piece_chunk_bytes(const struct engine_transfer *transfer, uint64_t i)
{
	const struct boxes *boxes = &((const struct block_transfer *)transfer)->boxes;

	return box_bytes(boxes, i % boxes->n);
}

static int pack_piece(struct engine_transfer *transfer, uint64_t i, void *chunk, struct error *err)
{
	struct block_transfer *of = (struct block_transfer *)transfer;
	const struct local_packed_blocks *packed = of->packed;
	const uint64_t block = i / of->boxes.n;
	struct move_here move = { .blocks = NULL };

	box_at(&of->boxes, i % of->boxes.n, &move);
	move.host += layer_at(packed, (uint32_t)(block / packed->n)) +
	             (uint64_t)packed->list[block % packed->n] * packed->side.step;
	return pack(&of->packer, &move, chunk, err);
}

static void divide_blocks(struct block_transfer *of, uint64_t limit)
{
	const struct local_packed_blocks *packed = of->packed;
	const uint64_t most = limit / packed->block.bytes, layers = most / packed->n;

	of->entries = most < packed->n ? most : packed->n;
	of->layers = layers == 0 ? 1 : layers < packed->layers ? (uint32_t)layers : packed->layers;
	of->n_along = divide_up(packed->n, of->entries);
	of->transfer.n_chunks = of->n_along * divide_up(packed->layers, of->layers);
	of->transfer.chunk_bytes = run_chunk_bytes;
	of->transfer.pack = pack_run;
}

int local_bring_blocks(struct local_session *session, const struct local_packed_blocks *packed,
                       uint64_t device, enum local_way way, uint64_t host_threads, struct error *err)
{
	const uint64_t limit = chunk_limit(packed->block.bytes * packed->n * packed->layers);
	struct block_transfer of = { .transfer.address = device,
		                     .packer = { session, way, host_threads },
		                     .packed = packed };

	if (packed->block.bytes <= limit) {
		divide_blocks(&of, limit);
		return bring(&of.packer, &of.transfer, err);
	}
	of.boxes = boxes_of(&packed->block, limit);
	of.transfer.n_chunks = of.boxes.n * packed->n * packed->layers;
	of.transfer.chunk_bytes = piece_chunk_bytes;
	of.transfer.pack = pack_piece;
	return bring(&of.packer, &of.transfer, err);
}
