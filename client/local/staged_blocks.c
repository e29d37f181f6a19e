/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a gather or scatter with one side in host memory into one on the device. Among the entries that
 * name a block, the k-th moves block src[k] to block dst[k]. The side in host memory gets a copy on the
 * device, whose blocks are in the order of the list. If that side is src, a scatter moves block k of the copy
 * to block dst[k]. If it is dst, a gather moves block src[k] to block k of the copy. */
#include "staging.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/transform/request.h"

/* The request, as the functions below need it. */
struct request_of {
	struct local_session *session;
	const struct msg_blocks *p;
	const struct engine_blocks *blocks;
	const struct request_places *places;
	enum engine_home dst, src;
};

/* ---- The list ----------------------------------------------------------------------------------------- */

static int64_t number_at(const struct engine_blocks *blocks, const void *list, uint64_t i)
{
	return blocks->index_bytes == sizeof(int32_t) ? (int32_t)le32toh(((const uint32_t *)list)[i])
	                                              : (int64_t)le64toh(((const uint64_t *)list)[i]);
}

/* Sets dst[k] and src[k] for each entry that names a block, and counts the other entries in *ret. Returns the
 * number of entries that name a block. */
static uint64_t read_list(struct local_staged_blocks *ret, const struct engine_blocks *blocks,
                          const void *list, int64_t *dst, int64_t *src)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = number_at(blocks, list, i << blocks->pairs);
		const int64_t other = blocks->pairs ? number_at(blocks, list, 2 * i + 1) : (int64_t)i;
		const int64_t to = blocks->scatter ? entry : other, from = blocks->scatter ? other : entry;
		const bool is_passed = entry == -1 || other == -1;
		const bool is_block = to >= 0 && (uint64_t)to < blocks_dst_count(blocks) && from >= 0 &&
		                      (uint64_t)from < blocks_src_count(blocks);

		ret->passed += is_passed;
		ret->beyond += !is_passed && !is_block;
		if (!is_block)
			continue;
		dst[n] = to;
		src[n++] = from;
	}
	return n;
}

/* Waits until all work on the stream has ended, and copies the list from memory that the device reaches to
 * `to`. */
static int fetch_list(const struct request_of *of, void *to, struct error *err)
{
	const struct local_stream *stream = &of->session->stream;
	const struct engine_blocks *blocks = of->blocks;

	return engine_copy(stream->device, (uint64_t)(uintptr_t)to,
	                   blocks->index_memory->base + blocks->index_offset,
	                   blocks->n * blocks_entry_bytes(blocks), stream->cuda_stream, err);
}

/* ---- Sides -------------------------------------------------------------------------------------------- */

/* Returns how many blocks a side has in each layer. */
static uint64_t count_of(const struct engine_blocks *blocks, bool is_dst)
{
	return is_dst ? blocks_dst_count(blocks) : blocks_src_count(blocks);
}

static int stage_side(struct local_staged_blocks *ret, const struct request_of *of, bool is_dst,
                      const int64_t *list, uint64_t n, struct local_packed_blocks *packed, uint64_t *ret_copy,
                      struct error *err)
{
	const struct msg_tensor *tensor = is_dst ? &of->p->dst : &of->p->src;
	const struct tensor_place *place = is_dst ? &of->places->dst : &of->places->src;
	const char *name = is_dst ? "dst" : "src";
	struct tensor_layout layout;
	int r = tensor_layout_of(&layout, tensor, name, err);

	if (r < 0)
		return r;
	*packed = (struct local_packed_blocks){ .side = is_dst ? of->blocks->dst : of->blocks->src,
		                                .layers = of->blocks->layers,
		                                .list = list,
		                                .n = n,
		                                .limit = count_of(of->blocks, is_dst) };
	packed->side.table = NULL; /* All layers lie in one memory for the engine. */
	local_packed_init(&packed->block, &layout, local_address(place));
	return local_stage_blocks(&ret->staging, packed, is_dst, name, ret_copy, err);
}

/* Has the request name its blocks by a list of n int64 in host memory; limit is the number of blocks of the
 * indexed side. */
static void use_list(struct msg_blocks *p, const int64_t *list, uint64_t n, uint64_t limit)
{
	p->has &= ~(F(blocks, index_at) | F(blocks, count) | F(blocks, pairs) | F(blocks, dst_limit));
	p->pairs = false;
	p->has |= F(blocks, index) | F(blocks, index_dtype) | F(blocks, limit);
	p->index = (struct bytes){ (const void *)list, n * sizeof *list };
	p->index_dtype = DTYPE_INT64;
	p->limit = limit;
}

static void use_dst_copy(struct msg_blocks *p, uint64_t copy, const struct local_packed_blocks *packed)
{
	local_use_copy(&p->dst, copy, &packed->block);
	p->has &= ~(F(blocks, dst_layers) | F(blocks, dst_table) | F(blocks, dst_places));
	p->has |= F(blocks, dst_step) | F(blocks, dst_layer_step) | F(blocks, layers);
	p->layers = packed->layers;
	p->dst_layers.len = p->dst_places.len = 0;
	p->dst_step = packed->block.bytes;
	p->dst_layer_step = packed->n * packed->block.bytes;
}

static void use_src_copy(struct msg_blocks *p, uint64_t copy, const struct local_packed_blocks *packed)
{
	local_use_copy(&p->src, copy, &packed->block);
	p->has &= ~(F(blocks, src_layers) | F(blocks, src_table) | F(blocks, src_places));
	p->has |= F(blocks, src_step) | F(blocks, src_layer_step) | F(blocks, layers);
	p->layers = packed->layers;
	p->src_layers.len = p->src_places.len = 0;
	p->src_step = packed->block.bytes;
	p->src_layer_step = packed->n * packed->block.bytes;
}

static int change_sides(struct local_staged_blocks *ret, const struct request_of *of, const int64_t *dst,
                        const int64_t *src, uint64_t n, struct error *err)
{
	const bool is_dst = of->dst == ENGINE_HOME_HOST;
	struct local_packed_blocks packed;
	uint64_t copy;
	int r;

	ret->scatter = !is_dst;
	use_list(&ret->changed, is_dst ? src : dst, n, count_of(of->blocks, !is_dst));
	if (n == 0) /* Nothing is moved, and no memory is needed. */
		return 0;
	r = stage_side(ret, of, is_dst, is_dst ? dst : src, n, &packed, &copy, err);
	if (r < 0)
		return r;
	if (is_dst)
		use_dst_copy(&ret->changed, copy, &packed);
	else
		use_src_copy(&ret->changed, copy, &packed);
	return 0;
}

/* Makes the lists of both sides in ret->words. The space after them is for the request's own list, which is
 * fetched if it is not in host memory. */
static int change_list(struct local_staged_blocks *ret, const struct request_of *of, struct error *err)
{
	const uint64_t n = of->blocks->n;
	const void *list = of->blocks->index;
	int r;

	ret->is_list_changed = true;
	ret->words = n > BLOCKS_ENTRIES_MOST ? NULL : malloc(4 * n * sizeof *ret->words);
	if (!ret->words)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
	if (!list) {
		list = ret->words + 2 * n;
		r = fetch_list(of, ret->words + 2 * n, err);
		if (r < 0)
			return r;
	}
	return change_sides(ret, of, ret->words, ret->words + n,
	                    read_list(ret, of->blocks, list, ret->words, ret->words + n), err);
}

/* ---- All ---------------------------------------------------------------------------------------------- */

/* Makes copies of scale and bias, as for a transform. */
static int stage_operands(struct local_staged_blocks *ret, const struct request_of *of, struct error *err)
{
	struct msg_transform block = request_block(of->p);
	int r = local_stage_tensors(&ret->staging, &block, of->places, false, err);

	ret->changed.scale = block.scale;
	ret->changed.bias = block.bias;
	return r;
}

static int find_homes(struct request_of *of, struct error *err)
{
	struct engine *device = of->session->stream.device;
	int r = engine_find_home(device, local_address(&of->places->dst), &of->dst, err);

	if (r < 0)
		return r;
	of->src = ENGINE_HOME_DEVICE;
	/* All blocks of the source are padding, so they have no memory. */
	if (local_is_empty(&of->p->src.shape))
		return 0;
	return engine_find_home(device, local_address(&of->places->src), &of->src, err);
}

int local_staged_blocks_init(struct local_staged_blocks *ret, struct local_session *session,
                             const struct msg_blocks *p, const struct engine_blocks *blocks,
                             const struct request_places *places, struct error *err)
{
	struct request_of of = { .session = session, .p = p, .blocks = blocks, .places = places };
	int r;

	*ret = (struct local_staged_blocks){ .changed = *p, .scatter = blocks->scatter };
	local_staging_init(&ret->staging, session, p->host_threads);
	r = find_homes(&of, err);
	if (r == 0)
		r = stage_operands(ret, &of, err);
	if (r == 0 && (of.dst == ENGINE_HOME_HOST || of.src == ENGINE_HOME_HOST))
		r = change_list(ret, &of, err);
	return r < 0 ? r : ret->is_list_changed || ret->staging.n > 0;
}

void local_staged_blocks_deinit(struct local_staged_blocks *staged)
{
	free(staged->words);
}
