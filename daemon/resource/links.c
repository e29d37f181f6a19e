/* SPDX-License-Identifier: Apache-2.0 */
/* From what has ended to the regions that it lay between. */
#include "links.h"

#include "batch.h"
#include "daemon/devices.h"
#include "daemon/method/blocks_job.h"
#include "job.h"
#include "region.h"
#include "table.h"

static uint64_t read_bytes(const struct transform *transform)
{
	return transform->bytes - (uint64_t)transform->count * transform->element;
}

static void count(struct devices *devices, const struct region *dst, const struct region *src, uint64_t bytes)
{
	if (!dst->memory->host && !src->memory->host && dst->device != src->device)
		devices->of[src->device].sent_bytes[dst->device] += bytes;
}

static const struct region *entry(const struct table *table, uint32_t i, const struct region *otherwise)
{
	return table ? table->regions[i] : otherwise;
}

/* As many layers have been moved as there are, each with as many blocks. */
static void count_blocks(struct devices *devices, const struct blocks_job *list, uint64_t bytes)
{
	const uint32_t layers = list->blocks.layers;

	for (uint32_t i = 0; i < layers; i++)
		count(devices, entry(list->dst_table, i, list->placed.dst),
		      entry(list->src_table, i, list->placed.src), bytes / layers);
}

void links_count_job(struct devices *devices, const struct job *job, uint64_t bytes)
{
	const struct transform *transform = job->engine_job.move.transform;

	if (devices->n == 1 || bytes == 0)
		return;
	if (job->parts)
		links_count_item(devices, &job->parts->items[0], job->parts->moves);
	else if (job->engine_job.blocks)
		count_blocks(devices, job->own, bytes / transform->bytes * read_bytes(transform));
	else
		count(devices, job->dst, job->src, read_bytes(transform));
}

void links_count_item(struct devices *devices, const struct batch_item *item, const struct engine_move *moves)
{
	for (uint32_t i = 0; devices->n > 1 && i < item->n_moves; i++)
		count(devices, entry(item->dst_table, i, item->dst), entry(item->src_table, i, item->src),
		      read_bytes(moves[i].transform));
}
