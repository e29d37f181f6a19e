/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as the engine takes them: numbers become pointers, and distances between layers those of this
 * process. */
#include <stdlib.h>
#include <string.h>

#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "served.h"

/* ---- Tables ------------------------------------------------------------------------------------------- */

static bool allocate(struct layer_table *table, uint32_t n)
{
	table->n = n;
	table->noun = "table";
	table->places = calloc(n, sizeof *table->places);
	table->memories = calloc(n, sizeof *table->memories);
	table->layers = calloc(n, sizeof *table->layers);
	table->order = calloc(n, sizeof *table->order);
	return table->places && table->memories && table->layers && table->order;
}

static void free_table(struct layer_table *table)
{
	if (!table)
		return;
	free((void *)table->places);
	free((void *)table->memories);
	free(table->layers);
	free(table->order);
	free(table);
}

/* Addresses are this process's. The front has checked the entries. */
static bool fill(struct served *served, struct layer_table *table, const struct wire_entry *entries)
{
	struct layer_place *places = (struct layer_place *)table->places;
	struct engine_memory **memories = (struct engine_memory **)table->memories;
	struct error ignored;

	for (uint32_t i = 0; i < table->n; i++) {
		const struct engine_memory *memory = served_memory(served, entries[i].memory);

		memories[i] = (struct engine_memory *)memory;
		places[i] = (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                                  .base = memory->base,
			                                  .offset = entries[i].offset,
			                                  .size = memory->size },
			                          .address = memory->address + entries[i].offset };
	}
	return layer_table_init(table, table->noun, &ignored) == 0;
}

static struct layer_table *new_table(struct served *served, const struct wire_entry *entries, uint32_t n)
{
	struct layer_table *table = calloc(1, sizeof *table);

	if (table && allocate(table, n) && fill(served, table, entries))
		return table;
	free_table(table);
	return NULL;
}

/* ---- From a message ----------------------------------------------------------------------------------- */

static struct engine_point point_of(struct served *served, const struct wire_point *wire)
{
	return (struct engine_point){ served_memory(served, wire->memory), wire->offset, wire->value };
}

static struct engine_operand operand_of(struct served *served, const struct wire_operand *wire)
{
	return (struct engine_operand){ wire->number, served_memory(served, wire->memory), wire->offset };
}

static struct engine_result result_of(struct served *served, const struct wire_result *wire)
{
	return (struct engine_result){ served_memory(served, wire->memory), wire->offset };
}

static struct engine_move move_of(struct served *served, const struct wire_move *wire)
{
	struct engine_plan *plan = served->layouts[wire->layout];

	return (struct engine_move){ .transform = &plan->transform,
		                     .plan = plan,
		                     .dst = served_memory(served, wire->dst),
		                     .src = served_memory(served, wire->src),
		                     .dst_offset = wire->dst_offset,
		                     .src_offset = wire->src_offset,
		                     .scale = operand_of(served, &wire->scale),
		                     .bias = operand_of(served, &wire->bias),
		                     .amax_scale = result_of(served, &wire->amax_scale),
		                     .amax_inverse = result_of(served, &wire->amax_inverse) };
}

/* Where the rest of the message was copied to, behind the moves; *at moves past what the side has of it. */
static bool take_side(struct served_job *job, const struct wire_side *wire, struct engine_blocks_side *side,
                      struct layer_table **table, const char **at)
{
	*side = (struct engine_blocks_side){ .step = wire->step, .layer_step = wire->layer_step };
	if (wire->n_layers)
		side->layers = (const int64_t *)(const void *)*at;
	*at += wire->n_layers * sizeof(int64_t);
	if (wire->n_table) {
		*table = new_table(job->served, (const void *)*at, wire->n_table);
		if (!*table)
			return false;
		blocks_use_table(side, *table);
	}
	*at += wire->n_table * sizeof(struct wire_entry);
	return true;
}

static bool take_blocks(struct served_job *job, const struct wire_blocks *wire, const char *at)
{
	struct engine_blocks *blocks = &job->blocks;

	*blocks = (struct engine_blocks){ .n = wire->n,
		                          .layers = wire->layers,
		                          .scatter = wire->scatter,
		                          .index_bytes = wire->index_bytes,
		                          .limit = wire->limit,
		                          .index_memory = served_memory(job->served, wire->index_memory),
		                          .index_offset = wire->index_offset };
	job->job.blocks = blocks;
	if (!take_side(job, &wire->dst, &blocks->dst, &job->tables[0], &at) ||
	    !take_side(job, &wire->src, &blocks->src, &job->tables[1], &at))
		return false;
	if (wire->index_size)
		blocks->index = at;
	return true;
}

struct served_job *served_job_new(struct served *served, const struct wire_job *wire)
{
	const struct wire_move *moves = (const void *)(wire + 1);
	const char *rest = (const char *)(moves + wire->n_moves);
	const size_t rest_bytes = wire->head.size - (size_t)(rest - (const char *)wire);
	const uint32_t n_batch = wire->is_batch ? wire->n_moves : 0;
	struct served_job *job = malloc(sizeof *job + n_batch * sizeof job->moves[0] + rest_bytes);
	char *at;

	if (!job)
		return NULL;
	*job = (struct served_job){ .served = served, .number = wire->job, .stream = wire->stream };
	job->job = (struct engine_job){ .wait = point_of(served, &wire->wait),
		                        .wait_until_ns = wire->wait_until_ns,
		                        .signal = point_of(served, &wire->signal),
		                        .priority = wire->priority,
		                        .multiprocessors = wire->multiprocessors,
		                        .host_threads = wire->host_threads };
	for (uint32_t i = 0; i < n_batch; i++)
		job->moves[i] = move_of(served, &moves[i]);
	if (wire->is_batch) {
		job->job.moves = job->moves;
		job->job.n_moves = n_batch;
	} else {
		job->job.move = move_of(served, &moves[0]);
	}
	at = (char *)(job->moves + n_batch);
	memcpy(at, rest, rest_bytes);
	if (!wire->has_blocks || take_blocks(job, &wire->blocks, at))
		return job;
	served_job_free(job);
	return NULL;
}

void served_job_free(struct served_job *job)
{
	free_table(job->tables[0]);
	free_table(job->tables[1]);
	free(job);
}

/* ---- To a message ------------------------------------------------------------------------------------- */

int served_job_write(struct served *served, const struct served_job *done)
{
	const struct engine_job *job = &done->job;
	const uint32_t n = job->moves ? job->n_moves : 0;
	const size_t size = sizeof(struct wire_done) + n * sizeof(struct wire_move_done);
	const struct wire_done wire = { .head = { (uint32_t)size, WIRE_DONE },
		                        .job = done->number,
		                        .status = job->status,
		                        .ns = job->ns,
		                        .changed = job->move.changed,
		                        .passed = done->blocks.passed,
		                        .beyond = done->blocks.beyond,
		                        .family = job->blocks ? done->blocks.family : job->move.family,
		                        .begun = job->begun,
		                        .is_measured = job->is_measured,
		                        .n_moves = n };

	if (!buffer_reserve(&served->out, size))
		return STATUS_NO_MEMORY;
	buffer_append(&served->out, &wire, sizeof wire);
	for (uint32_t i = 0; i < n; i++) {
		const struct wire_move_done move = { job->moves[i].changed, job->moves[i].status,
			                             job->moves[i].family };

		buffer_append(&served->out, &move, sizeof move);
	}
	return 0;
}
