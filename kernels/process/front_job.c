/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a job into messages for the child, and the child's answer into the outcome of the job. The front
 * itself makes no plans: its own part of a plan is the number by which the child knows it. */
#include "front.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/host/backing.h"
#include "kernels/transform/layer_table.h"

/* ---- Plans --------------------------------------------------------------------------------------------- */

/* The number of a plan. The child has to forget it once the plan is gone. A plan may be freed on any thread,
 * but only the owner's thread writes to the child. */
struct front_layout {
	uint32_t number;
	uint64_t life; /* `life` of the child that knows the number; 0: none does */
	SLIST_ENTRY(front_layout) entry;
};

struct own {
	struct front_layout *layout; /* NULL: the plan was never sent */
};

static void deinit(struct engine_plan *plan)
{
	struct front *front = plan->cache->arg;
	struct own *own = plan->own;

	if (!own->layout)
		return;
	pthread_mutex_lock(&front->lock);
	SLIST_INSERT_HEAD(&front->forgotten, own->layout, entry);
	pthread_mutex_unlock(&front->lock);
}

const struct plan_cache_ops front_plan_ops = { .own_bytes = sizeof(struct own), .deinit = deinit };

static struct front_layout *take_forgotten(struct front *front)
{
	struct front_layout *layout;

	pthread_mutex_lock(&front->lock);
	layout = SLIST_FIRST(&front->forgotten);
	if (layout)
		SLIST_REMOVE_HEAD(&front->forgotten, entry);
	pthread_mutex_unlock(&front->lock);
	return layout;
}

void front_forget_plans(struct front *front)
{
	struct front_layout *layout;

	while ((layout = take_forgotten(front))) {
		if (front->own && layout->life == front->own->life)
			front_send_number(front, WIRE_FORGET_LAYOUT, layout->number, 0);
		numbers_give(&front->layout_numbers, layout->number);
		free(layout);
	}
}

static struct front_layout *new_layout(struct front *front)
{
	struct front_layout *layout = calloc(1, sizeof *layout);

	if (layout && numbers_take(&front->layout_numbers, &layout->number))
		return layout;
	free(layout);
	return NULL;
}

static struct wire_layout wire_of(const struct engine_plan *plan, uint32_t number)
{
	return (struct wire_layout){ .head = { sizeof(struct wire_layout), WIRE_LAYOUT },
		                     .layout = number,
		                     .places = plan->places,
		                     .transform = plan->transform };
}

/* Makes sure that the child knows the plan: appends a message to front->out if it does not. Returns 0 or
 * NO_MEMORY. */
static int send_plan(struct front *front, const struct engine_plan *plan)
{
	struct own *own = plan->own;
	struct wire_layout wire;

	if (!own->layout)
		own->layout = new_layout(front);
	if (!own->layout)
		return STATUS_NO_MEMORY;
	if (own->layout->life == front->own->life)
		return 0;
	wire = wire_of(plan, own->layout->number);
	if (buffer_append(&front->out, &wire, sizeof wire) < 0)
		return STATUS_NO_MEMORY;
	own->layout->life = front->own->life;
	return 0;
}

/* Returns the plan's number. send_plan must have succeeded. */
static uint32_t plan_number(const struct engine_plan *plan)
{
	const struct own *own = plan->own;

	return own->layout->number;
}

/* Blocks the calling thread, as mapping does. The child makes a plan of its own for the explanation. */
int front_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                  struct error *err)
{
	const struct wire_layout layout = wire_of(plan, WIRE_NONE);
	struct child_call call = {
		.call = { .kind = WIRE_EXPLAIN }, .fd = -1, .layout = &layout, .explanation = ret
	};
	struct child *child = front_child(front_of(engine), err);
	struct wire_answer answer;
	int r;

	if (!child)
		return err->status;
	r = child_do(child, &call, &answer, NULL, err);
	child_unref(child);
	return r;
}

/* ---- Counts ------------------------------------------------------------------------------------------- */

static void add(struct engine_cache_stats *ret, const struct shared_stats *stats)
{
	ret->hits += atomic_load(&stats->hits);
	ret->misses += atomic_load(&stats->misses);
	ret->evictions += atomic_load(&stats->evictions);
}

void front_keep_stats(struct front *front)
{
	add(&front->before, &front->own->shared->maps);
	add(&front->plans_before, &front->own->shared->plans);
}

void front_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	struct front *front = front_of(engine);

	*ret = front->before;
	if (!front->own)
		return;
	add(ret, &front->own->shared->maps);
	ret->entries = atomic_load(&front->own->shared->maps.entries);
}

void front_add_plan_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	struct front *front = front_of(engine);

	ret->hits += front->plans_before.hits;
	ret->misses += front->plans_before.misses;
	ret->evictions += front->plans_before.evictions;
	if (!front->own)
		return;
	add(ret, &front->own->shared->plans);
	ret->entries += atomic_load(&front->own->shared->plans.entries);
}

void front_tell_plans(const struct front *front, struct child *child)
{
	atomic_store(&child->shared->keep_plans, front->hello.plans);
	atomic_store(&child->shared->tunes, front->hello.tunes);
}

void front_keep_plans(struct engine *engine, uint64_t n)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	front->hello.plans = n;
	if (front->child)
		front_tell_plans(front, front->child);
	pthread_mutex_unlock(&front->lock);
}

void front_tune(struct engine *engine, bool tunes)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	front->hello.tunes = tunes;
	if (front->child)
		front_tell_plans(front, front->child);
	pthread_mutex_unlock(&front->lock);
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static bool is_missing(struct engine_memory *memory, void *child)
{
	uint32_t ignored;

	return !front_memory_number(child, memory, &ignored);
}

bool front_job_is_mapped(struct child *child, const struct engine_job *job)
{
	return !memory_is(job->wait.memory, is_missing, child) && !job_any_memory(job, is_missing, child);
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
		                     .pairs = blocks->pairs,
		                     .index_bytes = blocks->index_bytes,
		                     .limit = blocks->limit,
		                     .dst_limit = blocks->dst_limit,
		                     .index_size = blocks->index ? blocks->n * blocks_entry_bytes(blocks) : 0,
		                     .index_memory = number_of(blocks->index ? NULL : blocks->index_memory),
		                     .index_offset = blocks->index_offset,
		                     .dst = side_of(&blocks->dst, blocks->layers),
		                     .src = side_of(&blocks->src, blocks->layers) };
}

static const struct engine_move *move_at(const struct engine_job *job, uint32_t i)
{
	return job->moves ? &job->moves[i] : &job->move;
}

static void write_move(struct front *front, const struct engine_move *move)
{
	struct wire_move wire = { .layout = plan_number(move->plan),
		                  .dst = number_of(move->dst),
		                  .src = number_of(move->src),
		                  .dst_offset = move->dst_offset,
		                  .src_offset = move->src_offset };

	for (int i = 0; i < ROLE_COUNT; i++)
		wire.operand[i] = operand_of(&move->operand[i]);
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

/* Appends the message of a job, padded with zeros to `bytes` bytes, for which room has been reserved. */
static void write_parts(struct front *front, const struct wire_job *wire, const struct engine_job *job,
                        uint64_t bytes)
{
	static const char zeros[WIRE_ALIGN];
	const size_t start = front->out.end;

	buffer_append(&front->out, wire, sizeof *wire);
	for (uint32_t i = 0; i < wire->n_moves; i++)
		write_move(front, move_at(job, i));
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
		                 .share = job->share,
		                 .n_moves = job->moves ? job->n_moves : 1,
		                 .is_batch = job->moves != NULL,
		                 .has_blocks = job->blocks != NULL };
	const size_t before = buffer_len(&front->out);
	uint64_t bytes = sizeof wire + wire.n_moves * sizeof(struct wire_move);
	int r = 0;

	if (job->blocks) {
		wire.blocks = blocks_of(job->blocks);
		bytes += side_bytes(&wire.blocks.dst) + side_bytes(&wire.blocks.src) + wire.blocks.index_size;
	}
	bytes = round_up(bytes);
	if (bytes > UINT32_MAX)
		return STATUS_NO_MEMORY;
	wire.head.size = (uint32_t)bytes;
	/* Layouts come before the message that uses them. */
	for (uint32_t i = 0; r == 0 && i < wire.n_moves; i++)
		r = send_plan(front, move_at(job, i)->plan);
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
