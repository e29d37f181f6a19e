/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, layers and blocks of requests. */
#include "request_blocks.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "request.h"

/* ---- Lists -------------------------------------------------------------------------------------------- */

static int64_t *copy_layers(int64_t *to, const struct bytes *list, const int64_t **ret)
{
	const size_t n = list->len / sizeof *to;

	memcpy(to, list->data, list->len);
	for (size_t l = 0; l < n; l++)
		to[l] = (int64_t)le64toh((uint64_t)to[l]);
	*ret = to;
	return to + n;
}

size_t request_list_bytes(const struct msg_blocks *p)
{
	return 2 * p->dst_layers.len + p->src_layers.len + p->index.len;
}

int64_t *request_copy_lists(const struct msg_blocks *p, int64_t *words, struct engine_blocks *blocks)
{
	int64_t *to = words, *sorted = NULL;

	if (p->has & F(blocks, dst_layers)) {
		to = copy_layers(to, &p->dst_layers, &blocks->dst.layers);
		sorted = to;
		to += blocks->layers;
	}
	if (p->has & F(blocks, src_layers))
		to = copy_layers(to, &p->src_layers, &blocks->src.layers);
	if (p->has & F(blocks, index)) {
		memcpy(to, p->index.data, p->index.len);
		blocks->index = to;
	}
	return sorted;
}

int request_check_entries(const struct msg_blocks *p, struct engine_blocks *ret, struct error *err)
{
	const bool in_message = p->has & F(blocks, index), in_region = p->has & F(blocks, index_at);

	if (p->index_dtype != DTYPE_INT32 && p->index_dtype != DTYPE_INT64)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index_dtype: %s, but entries must be int32 or int64",
		                 dtype_names[p->index_dtype]);
	ret->index_bytes = (uint8_t)dtype_size(p->index_dtype);
	if (in_message == in_region)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index: %s; a list is either in the message or in a region",
		                 in_message ? "index_at is given too" : "missing, as is index_at");
	if (in_region != !!(p->has & F(blocks, count)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "count: %s",
		                 in_region
		                     ? "missing; index_at needs it"
		                     : "given too, but the length of index says how many entries there are");
	ret->n = in_region ? p->count : p->index.len / ret->index_bytes;
	if (in_message && p->index.len % ret->index_bytes)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index: %zu bytes is not a multiple of the %" PRIu8
		                 " bytes of an entry (%s)",
		                 p->index.len, ret->index_bytes, dtype_names[p->index_dtype]);
	return 0;
}

static int check_layers(const struct request_layers *fields, uint64_t layers, struct error *err)
{
	const char *side = fields->side;

	if (fields->has_step && fields->has_list)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "%s_layers: %s_layer_step is given too; layers are either listed or evenly spaced", side,
		    side);
	if (fields->has_list &&
	    (fields->list_bytes % sizeof(int64_t) || fields->list_bytes / sizeof(int64_t) != layers))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_layers: %zu bytes, but layers is %" PRIu64 " and each takes 8", side,
		                 fields->list_bytes, layers);
	if (layers > 1 && !fields->has_step && !fields->has_list)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_layer_step: missing, as is %s_layers, but layers is %" PRIu64, side,
		                 side, layers);
	return 0;
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

const char *request_table_name(const struct request_layers *fields)
{
	static const char *const names[2][2] = { { "src_places", "src_table" },
		                                 { "dst_places", "dst_table" } };

	return names[fields->side[0] == 'd'][fields->has_table];
}

int request_check_table(const struct request_layers *fields, struct error *err)
{
	const char *side = fields->side, *name = request_table_name(fields);

	if (!request_has_table(fields))
		return 0;
	if (fields->has_table && fields->has_places)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_places: %s_table is given too; a table is either prepared or sent", side,
		                 side);
	if (fields->has_step || fields->has_list)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: %s_layer%s is given too; a table has layers", name, side,
		                 fields->has_list ? "s" : "_step");
	if (fields->tensor->has & F(tensor, region))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.region: %" PRIu64 ", but %s names regions",
		                 side, fields->tensor->region, name);
	return 0;
}

int request_count_layers(const struct msg_blocks *p, const struct request_layers sides[2],
                         const uint32_t entries[2], uint32_t *ret, struct error *err)
{
	uint64_t layers = p->layers;
	int r = 0;

	for (int i = 1; i >= 0 && !(p->has & F(blocks, layers)); i--)
		layers = entries[i] ? entries[i] : layers;
	if (layers == 0 || layers > UINT32_MAX)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layers: %" PRIu64 ", but it must be 1 to %" PRIu32, layers, UINT32_MAX);
	for (int i = 0; i < 2 && r == 0; i++)
		if (!entries[i])
			r = check_layers(&sides[i], layers, err);
		else if (entries[i] != layers)
			r = error_set(err, STATUS_INVALID_ARGUMENT,
			              "%s: %" PRIu32 " entries, but there are %" PRIu64 " layers",
			              request_table_name(&sides[i]), entries[i], layers);
	*ret = (uint32_t)layers;
	return r;
}

int request_check_run_places(const struct msg_plan_run *p, struct error *err)
{
	if (!(p->has & F(plan_run, dst)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "dst: missing, as is dst_table");
	if (!(p->has & F(plan_run, src)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src: missing, as is src_table");
	return 0;
}

int request_check_run_tables(const struct msg_plan_run *p, struct error *err)
{
	if (!(p->has & F(plan_run, dst_table)))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst_table: missing, but src_table is %" PRIu64
		                 "; many sources have as many destinations",
		                 p->src_table);
	if (p->has & F(plan_run, dst))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst: dst_table is given too; it has the places");
	if (!(p->has & F(plan_run, src)) == !(p->has & F(plan_run, src_table)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src: %s",
		                 p->has & F(plan_run, src) ? "src_table is given too; it has the places"
		                                           : "missing, as is src_table");
	return 0;
}

/* ---- A block ------------------------------------------------------------------------------------------ */

struct msg_transform request_block(const struct msg_blocks *p)
{
	struct msg_transform transform = {
		.dst = p->dst,
		.src = p->src,
		.perm = p->perm,
		.before = p->before,
		.after = p->after,
		.mode = p->mode,
		.value = p->value,
		.cast = p->cast,
		.scale = p->scale,
		.bias = p->bias,
	};

	transform.has = F(transform, dst) | F(transform, src);
	transform.has |= p->has & F(blocks, perm) ? F(transform, perm) : 0;
	transform.has |= p->has & F(blocks, before) ? F(transform, before) : 0;
	transform.has |= p->has & F(blocks, after) ? F(transform, after) : 0;
	transform.has |= p->has & F(blocks, cast) ? F(transform, cast) : 0;
	transform.has |= p->has & F(blocks, scale) ? F(transform, scale) : 0;
	transform.has |= p->has & F(blocks, bias) ? F(transform, bias) : 0;
	return transform;
}

/* A list moves each of its blocks by one transform. A split with an incomplete last block takes several. */
int request_block_spec(const struct msg_transform *block, struct transform_spec *ret, struct error *err)
{
	struct split split;
	int r;

	if (!transform_is_split(block))
		return transform_spec_of(block, ret, err);
	r = transform_split_of(block, &split, err);
	if (r < 0)
		return r;
	if (split.n_rests > 0)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "%s.split: the last block is incomplete; gather and scatter take only "
		                 "splits into complete blocks",
		                 split.rest[0].is_src ? "src" : "dst");
	*ret = split.spec;
	return 0;
}

int request_set_steps(const struct msg_blocks *p, const struct transform_spec *spec,
                      const struct tensor_place *indexed, struct engine_blocks *blocks, struct error *err)
{
	const struct tensor_extent dst = tensor_extent(&spec->dst), src = tensor_extent(&spec->src);

	blocks->dst.step = p->has & F(blocks, dst_step) ? p->dst_step : blocks_default_step(dst);
	blocks->src.step = p->has & F(blocks, src_step) ? p->src_step : blocks_default_step(src);
	blocks->limit = p->limit;
	if (p->has & F(blocks, limit))
		return 0;
	return blocks_default_limit(blocks, blocks->scatter ? dst : src, indexed, err);
}
