/* SPDX-License-Identifier: Apache-2.0 */
/* A list of blocks is one launch, with its entries in the arguments or in the upload buffer, where the
 * layers' offsets also are. Of a batch, all runs of bytes are one launch, the other small moves one launch
 * for each kernel, and a move that is large or does not fit is a launch of its own. */
#include "many.h"

#include <string.h>

#include "job.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/convert.h"
#include "kernels/cuda/launch/enclosed.h"
#include "kernels/cuda/launch/launch_many.h"
#include "kernels/cuda/launch/strided_args.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/strategy/block_plan.h"
#include "kernels/cuda/strategy/strategy.h"

/* A move of more bytes is worth a launch and a better kernel. */
#define ALONE_BYTES (1u << 20)

/* A batch that borrows its buffer is of the parts of one split, and its tables take less than this. */
#define BATCH_ROOM (64u << 10)

static uint64_t address_of(struct engine_memory *memory, uint64_t offset)
{
	return cuda_memory(memory)->address + offset;
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

/* An index that came with the job: it has been checked, but for what is passed over. */
static const void *lay_index(struct upload_buffer *upload_buffer, struct engine_blocks *blocks)
{
	const size_t bytes = (size_t)blocks->n * blocks->index_bytes;
	const unsigned char *from = blocks->index;
	void *to = upload_buffer_take(upload_buffer, bytes);

	if (!to)
		return NULL;
	memcpy(to, from, bytes);
	for (uint64_t i = 0; i < blocks->n; i++) {
		int64_t entry =
		    blocks->index_bytes == 8 ? ((const int64_t *)to)[i] : ((const int32_t *)to)[i];

		blocks->passed += entry == -1;
		blocks->beyond += entry != -1 && (uint64_t)entry >= blocks->limit;
	}
	return to;
}

static int lay_layers(struct upload_buffer *upload_buffer, const struct engine_blocks *blocks,
                      const struct engine_blocks_side *side, const void **ret)
{
	const size_t bytes = blocks->layers * sizeof *side->layers;
	void *to;

	*ret = NULL;
	if (!side->layers)
		return 0;
	to = upload_buffer_take(upload_buffer, bytes);
	if (!to)
		return STATUS_NO_MEMORY;
	memcpy(to, side->layers, bytes);
	*ret = to;
	return 0;
}

static size_t layers_room(const struct engine_blocks *blocks, const struct engine_blocks_side *side)
{
	return side->layers ? upload_buffer_room(blocks->layers * sizeof *side->layers) : 0;
}

/* Returns the room that the lists of the job take in the upload buffer. */
static size_t lists_room(const struct engine_blocks *blocks)
{
	const size_t index = blocks->index ? upload_buffer_room((size_t)blocks->n * blocks->index_bytes) : 0;

	return index + layers_room(blocks, &blocks->dst) + layers_room(blocks, &blocks->src);
}

static struct block_list list_of(const struct engine_blocks *blocks)
{
	return (struct block_list){
		.dst_layer_step = blocks->dst.layer_step,
		.src_layer_step = blocks->src.layer_step,
		.dst_step = blocks->dst.step,
		.src_step = blocks->src.step,
		.limit = blocks->limit,
		.entry_bytes = blocks->index_bytes,
		.scatter = blocks->scatter,
		.by_n = divisor_of(blocks->n),
	};
}

/* base: the upload buffer's, for kernels. */
static int lay_list(struct upload_buffer *upload_buffer, const struct engine_job *job,
                    struct engine_blocks *blocks, CUstream stream, struct block_list *ret, uint64_t *ret_base,
                    struct error *err)
{
	const void *index = NULL, *dst_layers, *src_layers;
	const size_t room = lists_room(blocks);
	uint64_t base = 0;
	int r = 0;

	if (!upload_buffer->uploads || room > 0)
		r = upload_buffer_begin_job(upload_buffer, job, room, err);
	if (r < 0)
		return r;
	if (blocks->index)
		index = lay_index(upload_buffer, blocks);
	if ((blocks->index && !index) || lay_layers(upload_buffer, blocks, &blocks->dst, &dst_layers) < 0 ||
	    lay_layers(upload_buffer, blocks, &blocks->src, &src_layers) < 0)
		return error_set(err, STATUS_NO_MEMORY, "the list is larger than %zu bytes",
		                 upload_buffer->size);
	r = upload_buffer_send(upload_buffer, stream, &base, err);
	ret->index = index ? upload_buffer_place(upload_buffer, base, index)
	                   : address_of(blocks->index_memory, blocks->index_offset);
	ret->dst_layers = dst_layers ? upload_buffer_place(upload_buffer, base, dst_layers) : 0;
	ret->src_layers = src_layers ? upload_buffer_place(upload_buffer, base, src_layers) : 0;
	ret->counts = index ? 0 : upload_buffer_counters(upload_buffer);
	*ret_base = base;
	return r;
}

/* The plan is for this list. */
static int launch_by(const struct many *many, const struct plan *plan, struct engine_blocks *blocks,
                     uint64_t dst, uint64_t src, struct error *err)
{
	const struct transform *transform = many->job->move.transform;
	struct block_list list = list_of(blocks);
	struct convert_operands operands;
	uint64_t base = 0;
	uint32_t enclosed = enclosed_entry_bytes(plan, blocks);
	int r = 0;

	blocks->family = plan->family;
	if (enclosed)
		list.entry_bytes = enclosed;
	else
		r = lay_list(many->upload_buffer, many->job, blocks, many->stream, &list, &base, err);
	if (r < 0)
		return r;
	if (transform->conversion.is)
		operands = upload_buffer_operands(many->upload_buffer, many->job, 0, base);
	r = launch_blocks(many->launcher, many->stream, transform, plan, dst, src, &operands, blocks, &list,
	                  err);
	if (r == 0)
		r = upload_buffer_fetch_changed(many->upload_buffer, many->job, many->stream, err);
	if (r == 0 && list.counts)
		r = upload_buffer_fetch_counters(many->upload_buffer, many->stream, err);
	return r;
}

static int launch_list(const struct many *many, struct error *err)
{
	const struct engine_move *move = &many->job->move;
	struct engine_blocks *blocks = many->job->blocks;
	const uint64_t dst = address_of(move->dst, move->dst_offset),
		       src = address_of(move->src, move->src_offset);
	struct engine_plan *plan = cuda_plan_of_list(move->plan, blocks, dst, src);
	int r;

	if (!plan)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	r = launch_by(many, cuda_plan(plan), blocks, dst, src, err);
	engine_plan_unref(plan);
	return r;
}

int many_launch_listed(struct launcher *launcher, CUstream stream, const struct engine_move *move,
                       struct engine_blocks *blocks, const struct many_list *listed, uint64_t dst,
                       uint64_t src, struct error *err)
{
	struct engine_plan *plan = cuda_plan_of_list(move->plan, blocks, dst, src);
	struct block_list list = list_of(blocks);
	int r;

	if (!plan)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	list.index = listed->index;
	list.dst_layers = listed->dst_layers;
	list.src_layers = listed->src_layers;
	blocks->family = cuda_plan(plan)->family;
	r = launch_blocks(launcher, stream, move->transform, cuda_plan(plan), dst, src, NULL, blocks, &list,
	                  err);
	engine_plan_unref(plan);
	return r;
}

/* ---- Batches ------------------------------------------------------------------------------------------ */

/* The tables of a batch, as they are laid out. Each move that goes by a table has its kernel and the place of
 * its entry; the others have KERNEL_COUNT. */
struct batch {
	struct many of;
	uint64_t base; /* of the upload buffer, for kernels */
	struct run_entry *runs;
	uint32_t n_runs;
	uint16_t *kernel; /* of each move */
	uint32_t *entry;  /* of each move: bytes from the upload buffer's start; of a run, of none */
	uint32_t *blocks; /* of threads, of each move */
	uint32_t *which;  /* by kernel */
	uint32_t *first;
};

#define KERNEL_RUN   KERNEL_COUNT       /* by the table of runs */
#define KERNEL_ALONE (KERNEL_COUNT + 1) /* by its own plan */
#define KERNEL_NONE  (KERNEL_COUNT + 2) /* nothing to do, or done */

static bool lay_tables(struct batch *batch)
{
	const size_t n = batch->of.job->n_moves;

	batch->kernel = upload_buffer_take(batch->of.upload_buffer, n * sizeof *batch->kernel);
	batch->entry = upload_buffer_take(batch->of.upload_buffer, n * sizeof *batch->entry);
	batch->blocks = upload_buffer_take(batch->of.upload_buffer, n * sizeof *batch->blocks);
	batch->which = upload_buffer_take(batch->of.upload_buffer, n * sizeof *batch->which);
	batch->first = upload_buffer_take(batch->of.upload_buffer, 2 * n * sizeof *batch->first);
	batch->runs = upload_buffer_take(batch->of.upload_buffer, n * sizeof *batch->runs);
	return batch->kernel && batch->entry && batch->blocks && batch->which && batch->first && batch->runs;
}

static void add_run(struct batch *batch, const struct tma_route_plan *tma, uint64_t dst, uint64_t src)
{
	batch->runs[batch->n_runs++] = (struct run_entry){ .dst = dst + (uint64_t)tma->dst_offset,
		                                           .src = src + (uint64_t)tma->src_offset,
		                                           .bytes = (uint64_t)tma->dim[0].n };
}

/* Returns a plan without a map, which all plans of one launch have to be, with a reference; NULL if out of
 * memory. */
static struct engine_plan *plain_plan(struct engine_plan *plan, uint64_t dst, uint64_t src)
{
	if (!strategy_of(cuda_plan(plan))->spreads)
		return cuda_plan_of_member(plan, dst | src);
	engine_plan_ref(plan);
	return plan;
}

/* Writes the move's entry of a table to the upload buffer. Returns false if the move cannot be in a table, or
 * if there is no room. */
static bool lay_entry(struct batch *batch, uint32_t i, const struct plan *plan, uint64_t dst, uint64_t src)
{
	void *entry = NULL;

	if (plan->tma.border_rank == 0)
		entry = upload_buffer_take(batch->of.upload_buffer, many_entry_bytes(plan));
	if (!entry)
		return false;
	batch->entry[i] = (uint32_t)((char *)entry - batch->of.upload_buffer->host);
	batch->blocks[i] =
	    many_entry_write(entry, batch->of.launcher, batch->of.job->moves[i].transform, plan, dst, src);
	return true;
}

/* How the move is to travel; its place in a table, if it is by one. */
static uint16_t lay_move(struct batch *batch, uint32_t i)
{
	const struct engine_move *move = &batch->of.job->moves[i];
	const struct tma_route_plan *tma = &cuda_plan(move->plan)->tma;
	const uint64_t dst = address_of(move->dst, move->dst_offset),
		       src = address_of(move->src, move->src_offset);
	struct engine_plan *plan;
	uint16_t kernel = KERNEL_ALONE;

	if (move->transform->count == 0)
		return KERNEL_NONE;
	if (tma->strategy == STRATEGY_memcpy && tma->border_rank == 0) {
		add_run(batch, tma, dst, src);
		return KERNEL_RUN;
	}
	if (move->transform->bytes > ALONE_BYTES || move->transform->conversion.is)
		return KERNEL_ALONE;
	plan = plain_plan(move->plan, dst, src);
	if (plan && lay_entry(batch, i, cuda_plan(plan), dst, src))
		kernel = (uint16_t)many_kernel(move->transform, &cuda_plan(plan)->tma);
	engine_plan_unref(plan);
	return kernel;
}

/* Moves that are launched together. */
struct group {
	uint32_t kernel;
	uint32_t start; /* in which */
	uint32_t first; /* in first */
	uint32_t n;
	uint32_t blocks;
};

/* The group takes the moves from i on that use its kernel. */
static void lay_group(struct batch *batch, uint32_t i, struct group *group)
{
	const uint32_t n = batch->of.job->n_moves;

	for (uint32_t j = i; j < n; j++) {
		if (batch->kernel[j] != group->kernel ||
		    __builtin_add_overflow(group->blocks, batch->blocks[j], &(uint32_t){ 0 }) ||
		    group->blocks + batch->blocks[j] > INT32_MAX)
			continue;
		batch->which[group->start + group->n] = batch->entry[j];
		batch->first[group->first + group->n] = group->blocks;
		group->blocks += batch->blocks[j];
		group->n++;
		batch->kernel[j] = KERNEL_NONE;
	}
	batch->first[group->first + group->n] = group->blocks;
}

/* Groups of one kernel each: KERNEL_COUNT at most, but where the blocks of threads are too many for one. */
static uint32_t lay_groups(struct batch *batch, struct group *groups, uint32_t most)
{
	uint32_t n = 0, which = 0, first = 0;

	for (uint32_t i = 0; i < batch->of.job->n_moves && n < most; i++) {
		if (batch->kernel[i] >= KERNEL_COUNT)
			continue;
		groups[n] = (struct group){ .kernel = batch->kernel[i], .start = which, .first = first };
		lay_group(batch, i, &groups[n]);
		which += groups[n].n;
		first += groups[n].n + 1;
		n++;
	}
	return n;
}

/* parts: of the runs. */
static int launch_tables(struct batch *batch, const struct group *groups, uint32_t n, uint64_t parts,
                         struct error *err)
{
	struct launcher *launcher = batch->of.launcher;
	const uint64_t base = batch->base;
	int r = 0;

	if (batch->n_runs > 0)
		r = launch_runs(launcher, batch->of.stream,
		                upload_buffer_place(batch->of.upload_buffer, base, batch->runs),
		                batch->n_runs, parts, err);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = launch_many(
		    launcher, batch->of.stream, groups[i].kernel, groups[i].n, base,
		    upload_buffer_place(batch->of.upload_buffer, base, batch->which + groups[i].start),
		    upload_buffer_place(batch->of.upload_buffer, base, batch->first + groups[i].first),
		    groups[i].blocks, err);
	return r;
}

static int launch_alone(struct batch *batch, uint32_t i, struct error *err)
{
	struct engine_move *move = &batch->of.job->moves[i];
	struct convert_operands operands;

	if (move->transform->conversion.is)
		operands = upload_buffer_operands(batch->of.upload_buffer, batch->of.job, i, batch->base);
	move->status = launch_transform(batch->of.launcher, batch->of.stream, move->transform,
	                                cuda_plan(move->plan), address_of(move->dst, move->dst_offset),
	                                address_of(move->src, move->src_offset), &operands, err);
	return move->status == STATUS_DEVICE_LOST ? STATUS_DEVICE_LOST : 0;
}

static int launch_batch(const struct many *many, struct error *err)
{
	struct engine_job *job = many->job;
	struct batch batch = { .of = *many };
	struct group groups[KERNEL_COUNT];
	uint32_t n_groups = 0;
	uint64_t parts = 0;
	bool tables;
	int r = upload_buffer_begin_job(batch.of.upload_buffer, job, BATCH_ROOM, err);

	if (r < 0)
		return r;
	tables = lay_tables(&batch);
	if (tables) {
		for (uint32_t i = 0; i < job->n_moves; i++)
			batch.kernel[i] = lay_move(&batch, i);
		n_groups = lay_groups(&batch, groups, KERNEL_COUNT);
		parts = runs_lay(batch.runs, batch.n_runs);
	}
	r = upload_buffer_send(batch.of.upload_buffer, batch.of.stream, &batch.base, err);
	if (r == 0 && tables)
		r = launch_tables(&batch, groups, n_groups, parts, err);
	for (uint32_t i = 0; i < job->n_moves && r == 0; i++)
		if (!tables || (batch.kernel[i] != KERNEL_RUN && batch.kernel[i] != KERNEL_NONE))
			r = launch_alone(&batch, i, err);
	return r < 0 ? r : upload_buffer_fetch_changed(batch.of.upload_buffer, job, batch.of.stream, err);
}

/* ---- One move ----------------------------------------------------------------------------------------- */

static int launch_move(const struct many *many, struct error *err)
{
	const struct engine_move *move = &many->job->move;
	struct upload_buffer *upload_buffer = many->upload_buffer;
	struct convert_operands operands;
	uint64_t base = 0;
	int r = 0;

	if (upload_buffer_is_needed(upload_buffer, many->job)) {
		r = upload_buffer_begin_job(upload_buffer, many->job, 0, err);
		if (r == 0)
			r = upload_buffer_send(upload_buffer, many->stream, &base, err);
		if (r < 0)
			return r;
	}
	if (move->transform->conversion.is)
		operands = upload_buffer_operands(upload_buffer, many->job, 0, base);
	r = launch_transform(many->launcher, many->stream, move->transform, cuda_plan(move->plan),
	                     address_of(move->dst, move->dst_offset), address_of(move->src, move->src_offset),
	                     &operands, err);
	return r < 0 ? r : upload_buffer_fetch_changed(upload_buffer, many->job, many->stream, err);
}

/* ---- All ---------------------------------------------------------------------------------------------- */

int many_launch(const struct many *many, struct error *err)
{
	if (many->job->blocks)
		return launch_list(many, err);
	return many->job->moves ? launch_batch(many, err) : launch_move(many, err);
}

int many_land(struct upload_buffer *upload_buffer, struct engine_job *job)
{
	uint64_t counted[2];

	if (job->blocks && !job->blocks->index) {
		upload_buffer_count(upload_buffer, counted);
		job->blocks->passed = counted[0];
		job->blocks->beyond = counted[1];
	}
	return job_first_failure(job);
}
