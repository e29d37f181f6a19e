/* SPDX-License-Identifier: Apache-2.0 */
/* From a job to its message, and back from what has become of it. */
#include <string.h>

#include "front.h"
#include "kernels/transform/layer_table.h"

static uint32_t number_of(const struct engine_memory *memory);

/* ---- Memory ------------------------------------------------------------------------------------------- */

static bool is_mapped(const struct child *child, const struct engine_memory *memory)
{
	uint32_t number;

	return front_memory_number(child, memory, &number);
}

static bool is_move_mapped(const struct child *child, const struct engine_move *move)
{
	return is_mapped(child, move->dst) && is_mapped(child, move->src) &&
	       is_mapped(child, move->scale.memory) && is_mapped(child, move->bias.memory) &&
	       is_mapped(child, move->amax_scale.memory) && is_mapped(child, move->amax_inverse.memory);
}

static bool is_side_mapped(const struct child *child, const struct engine_blocks_side *side)
{
	for (uint32_t i = 0; side->table && i < side->table->n; i++)
		if (!is_mapped(child, side->table->memories[i]))
			return false;
	return true;
}

bool front_job_is_mapped(const struct child *child, const struct engine_job *job)
{
	const struct engine_blocks *blocks = job->blocks;

	if (!is_mapped(child, job->wait.memory) || !is_mapped(child, job->signal.memory))
		return false;
	if (blocks && (!is_mapped(child, blocks->index_memory) || !is_side_mapped(child, &blocks->dst) ||
	               !is_side_mapped(child, &blocks->src)))
		return false;
	if (!job->moves)
		return is_move_mapped(child, &job->move);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (!is_move_mapped(child, &job->moves[i]))
			return false;
	return true;
}

/* ---- To the child ------------------------------------------------------------------------------------- */

static uint32_t number_of(const struct engine_memory *memory)
{
	uint32_t number;

	front_memory_number(NULL, memory, &number);
	return number;
}

static struct wire_point point_of(const struct engine_point *point)
{
	return (struct wire_point){ number_of(point->memory), point->offset, point->value };
}

static struct wire_operand operand_of(const struct engine_operand *operand)
{
	return (struct wire_operand){ operand->number, number_of(operand->memory), operand->offset };
}

static struct wire_result result_of(const struct engine_result *result)
{
	return (struct wire_result){ number_of(result->memory), result->offset };
}

static struct wire_side side_of(const struct engine_blocks_side *side, uint32_t layers)
{
	return (struct wire_side){ .step = side->step,
		                   .layer_step = side->layer_step,
		                   .n_layers = side->layers && !side->table ? layers : 0,
		                   .n_table = side->table ? side->table->n : 0 };
}

static struct wire_blocks blocks_of(const struct engine_blocks *blocks)
{
	return (struct wire_blocks){ .n = blocks->n,
		                     .layers = blocks->layers,
		                     .scatter = blocks->scatter,
		                     .index_bytes = blocks->index_bytes,
		                     .limit = blocks->limit,
		                     .index_size = blocks->index ? blocks->n * blocks->index_bytes : 0,
		                     .index_memory = number_of(blocks->index ? NULL : blocks->index_memory),
		                     .index_offset = blocks->index_offset,
		                     .dst = side_of(&blocks->dst, blocks->layers),
		                     .src = side_of(&blocks->src, blocks->layers) };
}

/* Its layouts come before the message of the job. */
static int write_layouts(struct front *front, const struct engine_job *job)
{
	uint32_t ignored;
	int r = 0;

	if (!job->moves)
		return front_plan_send(front, job->move.plan, &ignored);
	for (uint32_t i = 0; r == 0 && i < job->n_moves; i++)
		r = front_plan_send(front, job->moves[i].plan, &ignored);
	return r;
}

static void write_move(struct front *front, const struct engine_move *move)
{
	const struct wire_move wire = { .layout = front_plan_number(move->plan),
		                        .dst = number_of(move->dst),
		                        .src = number_of(move->src),
		                        .dst_offset = move->dst_offset,
		                        .src_offset = move->src_offset,
		                        .scale = operand_of(&move->scale),
		                        .bias = operand_of(&move->bias),
		                        .amax_scale = result_of(&move->amax_scale),
		                        .amax_inverse = result_of(&move->amax_inverse) };

	buffer_append(&front->out, &wire, sizeof wire);
}

static void write_side(struct front *front, const struct wire_side *wire,
                       const struct engine_blocks_side *side)
{
	if (wire->n_layers)
		buffer_append(&front->out, side->layers, wire->n_layers * sizeof *side->layers);
	for (uint32_t i = 0; i < wire->n_table; i++) {
		const struct wire_entry entry = { number_of(side->table->memories[i]),
			                          side->table->places[i].at.offset };

		buffer_append(&front->out, &entry, sizeof entry);
	}
}

static uint64_t side_bytes(const struct wire_side *side)
{
	return side->n_layers * sizeof(int64_t) + side->n_table * sizeof(struct wire_entry);
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + WIRE_ALIGN - 1) / WIRE_ALIGN * WIRE_ALIGN;
}

/* Room for all of it has been reserved. */
static void write_parts(struct front *front, const struct wire_job *wire, const struct engine_job *job,
                        uint64_t bytes)
{
	static const char zeros[WIRE_ALIGN];
	const size_t start = front->out.end;

	buffer_append(&front->out, wire, sizeof *wire);
	for (uint32_t i = 0; i < wire->n_moves; i++)
		write_move(front, job->moves ? &job->moves[i] : &job->move);
	if (wire->has_blocks) {
		write_side(front, &wire->blocks.dst, &job->blocks->dst);
		write_side(front, &wire->blocks.src, &job->blocks->src);
		buffer_append(&front->out, job->blocks->index, wire->blocks.index_size);
	}
	buffer_append(&front->out, zeros, bytes - (front->out.end - start));
}

int front_job_write(struct front *front, const struct engine_stream *stream, uint32_t number,
                    const struct engine_job *job, size_t *ret_bytes)
{
	struct wire_job wire = { .head = { .kind = WIRE_JOB },
		                 .job = number,
		                 .stream = stream->number,
		                 .owner = (uintptr_t)stream->fair.owner,
		                 .wait = point_of(&job->wait),
		                 .signal = point_of(&job->signal),
		                 .wait_until_ns = job->wait_until_ns,
		                 .priority = job->priority,
		                 .multiprocessors = job->multiprocessors,
		                 .host_threads = job->host_threads,
		                 .n_moves = job->moves ? job->n_moves : 1,
		                 .is_batch = job->moves != NULL,
		                 .has_blocks = job->blocks != NULL };
	const size_t before = buffer_len(&front->out);
	uint64_t bytes = sizeof wire + wire.n_moves * sizeof(struct wire_move);
	int r;

	if (job->blocks) {
		wire.blocks = blocks_of(job->blocks);
		bytes += side_bytes(&wire.blocks.dst) + side_bytes(&wire.blocks.src) + wire.blocks.index_size;
	}
	bytes = round_up(bytes);
	if (bytes > UINT32_MAX)
		return STATUS_NO_MEMORY;
	wire.head.size = (uint32_t)bytes;
	r = write_layouts(front, job);
	if (r < 0 || !buffer_reserve(&front->out, bytes))
		return STATUS_NO_MEMORY;
	write_parts(front, &wire, job, bytes);
	*ret_bytes = buffer_len(&front->out) - before;
	return 0;
}

/* ---- Back --------------------------------------------------------------------------------------------- */

bool front_job_read(const struct wire_done *done, struct engine_job *job)
{
	const struct wire_move_done *moves = (const void *)(done + 1);

	if (done->n_moves != (job->moves ? job->n_moves : 0) ||
	    done->head.size != sizeof *done + done->n_moves * sizeof *moves)
		return false;
	job->status = done->status;
	job->ns = done->ns;
	job->begun = done->begun;
	job->is_measured = done->is_measured;
	job->move.changed = done->changed;
	job->move.family = done->family;
	for (uint32_t i = 0; i < done->n_moves; i++) {
		job->moves[i].changed = moves[i].changed;
		job->moves[i].status = moves[i].status;
		job->moves[i].family = moves[i].family;
	}
	if (job->blocks) {
		job->blocks->family = done->family;
		job->blocks->passed = done->passed;
		job->blocks->beyond = done->beyond;
	}
	return true;
}
