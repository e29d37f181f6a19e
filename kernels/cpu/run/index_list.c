/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the entries of an index list, and computes the addresses of their blocks. */
#include "index_list.h"

#include <endian.h>
#include <string.h>

#include "kernels/host/memory.h"

/* At any address; volatile, so that what is checked is what is used. */
typedef volatile uint32_t __attribute__((aligned(1), may_alias)) entry4;
typedef volatile uint64_t __attribute__((aligned(1), may_alias)) entry8;

static const char *list_start(const struct engine_blocks *blocks)
{
	if (blocks->index)
		return blocks->index;
	return host_memory(blocks->index_memory)->data + blocks->index_offset;
}

static int64_t read_entry(const char *at, uint8_t bytes)
{
	if (bytes == 4)
		return (int32_t)le32toh(*(const entry4 *)(const void *)at);
	return (int64_t)le64toh(*(const entry8 *)(const void *)at);
}

void index_list_read(struct engine_blocks *blocks, uint64_t first, struct index_list_group *ret)
{
	const char *at = list_start(blocks) + first * blocks->index_bytes;
	uint64_t left = blocks->n - first;
	ret->first = first;
	ret->named = 0;
	ret->n = left < INDEX_LIST_GROUP ? (uint32_t)left : INDEX_LIST_GROUP;
	for (uint32_t i = 0; i < ret->n; i++, at += blocks->index_bytes) {
		int64_t block = read_entry(at, blocks->index_bytes);
		if (block == -1) {
			blocks->passed++;
		} else if (block < 0 || (uint64_t)block >= blocks->limit) {
			blocks->beyond++;
			block = -1;
		}
		ret->block[i] = block;
		ret->named += block >= 0;
	}
}

uint32_t index_list_named(const struct engine_blocks *blocks)
{
	const char *at = list_start(blocks);
	uint32_t n = 0;
	for (uint64_t i = 0; i < blocks->n; i++, at += blocks->index_bytes)
		n += read_entry(at, blocks->index_bytes) != -1;
	return n;
}

bool index_list_names_nothing(const struct engine_job *job)
{
	return job->blocks && job->blocks->index && index_list_named(job->blocks) == 0;
}

struct fault_range index_list_range(const struct engine_blocks *blocks)
{
	if (blocks->index)
		return (struct fault_range){ 0 };
	return host_memory(blocks->index_memory)->mapped;
}

void index_list_layer_ranges(const struct engine_job *job, uint32_t layer, struct fault_range ret[2])
{
	const struct engine_blocks *blocks = job->blocks;

	ret[0] = host_memory(blocks_memory(&blocks->dst, layer, job->move.dst))->mapped;
	ret[1] = host_memory(blocks_memory(&blocks->src, layer, job->move.src))->mapped;
}

/* Bytes past the move's offset; modulo 2^64, as steps and ways to other memories may be negative. */
static uint64_t side_at(const struct engine_blocks_side *side, uint64_t block, uint32_t layer)
{
	uint64_t of_layer = side->layers ? (uint64_t)side->layers[layer] : layer * side->layer_step;
	return block * side->step + of_layer;
}

void index_list_place(const struct engine_job *job, uint64_t entry, int64_t block, uint32_t layer,
                      struct move_place *ret)
{
	const struct engine_blocks *blocks = job->blocks;
	const struct engine_move *move = &job->move;
	uint64_t dst = blocks->scatter ? (uint64_t)block : entry;
	uint64_t src = blocks->scatter ? entry : (uint64_t)block;
	ret->dst =
	    host_memory(move->dst)->data + (int64_t)(move->dst_offset + side_at(&blocks->dst, dst, layer));
	ret->src =
	    host_memory(move->src)->data + (int64_t)(move->src_offset + side_at(&blocks->src, src, layer));
}
