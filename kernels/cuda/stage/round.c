/* SPDX-License-Identifier: Apache-2.0 */
/* A round brings the source in, runs the kernel and takes the destination out. If a job has several rounds,
 * each of the three steps has a stream of its own, so that steps of different rounds overlap.
 *
 * This file also launches jobs that are not staged. A list of blocks is one launch; its entries are in the
 * kernel's arguments or in the upload buffer, or stay where they lie on the device, and the layers' offsets
 * are in the upload buffer. In a batch, one launch moves all runs of bytes, and one launch for each kernel
 * the other small moves. A move that is large, or does not fit into the tables, is a launch of its own.
 */
#include "round.h"

#include <string.h>

#include "jobs.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/cuda/strategy/strategy.h"
#include "kernels/nest/narrow.h"

void round_init(struct round *round)
{
	const struct staging *s = round->staging;
	const struct engine_job *job = round->job;

	if (!job->moves) {
		round->dst = cuda_memory(job->move.dst)->address + job->move.dst_offset;
		round->src = cuda_memory(job->move.src)->address + job->move.src_offset;
	}
	if (s->run || (s->transform && staging_is_needed(s)))
		staging_round(s, round->i, &round->part);
}

static uint64_t scratch_src(const struct round *round)
{
	const struct staging *s = round->staging;
	uint64_t low = s->src == STAGING_WHOLE ? (uint64_t)transform_reads(round->job->move.transform).low
	                                       : (uint64_t)round->part.reads.low;

	if (s->src == STAGING_STRIPE) /* Packed rows begin with the first element that is read. */
		low = 0;
	return staging_src_place(s, round->scratch, round->i, round->src + low) - low;
}

static uint64_t scratch_dst(const struct round *round)
{
	const struct staging *s = round->staging;
	const uint64_t low = (uint64_t)round->part.writes.low;

	if (s->run)
		return scratch_src(round) + (uint64_t)round->part.reads.low - low;
	const uint64_t place = staging_dst_place(s, round->scratch, round->i, round->dst + low);

	return s->dst == STAGING_STRIPE ? place : place - low;
}

int round_pass(struct round *round, CUstream to, struct error *err)
{
	if (round->last && round->last != to) {
		int r = equipment_pass(round->equipment, round->last, to, err);

		if (r < 0)
			return r;
	}
	round->last = to;
	return 0;
}

/* ---- Bringing the source in --------------------------------------------------------------------------- */

/* Copies bytes [low, high) of the source to scratch memory. Does nothing if low >= high. */
static int copy_in(struct round *round, int64_t low, int64_t high, struct error *err)
{
	const struct engine_job *job = round->job;
	const char *from = cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset + low;

	if (low >= high)
		return 0;
	round->last = round->in;
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (scratch_src(round) + (uint64_t)low, from, (size_t)(high - low), round->in));
}

/* Extends what has been brought of a STAGING_WHOLE source, at both ends and without gaps, to what this round
 * reads. A round that reads more than half of the source brings all of it. */
static int bring_more(struct round *round, struct error *err)
{
	struct tensor_extent *brought = round->brought, reads = round->part.reads;
	struct tensor_extent whole = transform_reads(round->job->move.transform);
	int r;

	if (reads.low == reads.high)
		return 0;
	if (reads.high - reads.low > (whole.high - whole.low) / 2)
		reads = whole;
	if (brought->low == brought->high)
		*brought = (struct tensor_extent){ reads.low, reads.low };
	r = copy_in(round, reads.low, brought->low, err);
	if (r == 0)
		r = copy_in(round, brought->high, reads.high, err);
	if (reads.low < brought->low)
		brought->low = reads.low;
	if (reads.high > brought->high)
		brought->high = reads.high;
	return r;
}

/* Copies between the rows of a box in host memory and the same rows packed in scratch memory, outwards if
 * `out` is set. One command copies along axis 0, which has the smallest stride; the indices of the other axes
 * are counted up like the digits of a number. */
static int copy_rows(const struct row_box *box, char *host, uint64_t scratch, bool out, CUstream stream,
                     struct error *err)
{
	struct copied_rows rows = { .host = (uint64_t)(uintptr_t)host,
		                    .device = scratch,
		                    .host_step = box->rank > 0 ? box->axis[0].stride : box->row_bytes,
		                    .device_step = box->row_bytes,
		                    .bytes = box->row_bytes,
		                    .n = box->rank > 0 ? box->axis[0].n : 1 };
	uint64_t at[TENSOR_MAX_RANK] = { 0 };
	int r = 0, d = 0;

	while (r == 0) {
		r = driver_copy_rows(&rows, out, stream, err);
		rows.device += rows.n * rows.bytes;
		for (d = 1; d < box->rank; d++) {
			rows.host += box->axis[d].stride;
			if (++at[d] < box->axis[d].n)
				break;
			rows.host -= at[d] * box->axis[d].stride;
			at[d] = 0;
		}
		if (d >= box->rank)
			break;
	}
	return r;
}

static int bring_rows(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;

	round->last = round->in;
	return copy_rows(&round->part.src_box,
	                 cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset +
	                     round->part.reads.low,
	                 scratch_src(round), false, round->in, err);
}

static int bring_in(struct round *round, struct error *err)
{
	switch (round->staging->src) {
	case STAGING_DIRECT:
		return 0;
	case STAGING_WHOLE:
		return bring_more(round, err);
	case STAGING_STRIPE:
		return bring_rows(round, err);
	default:
		return copy_in(round, round->part.reads.low, round->part.reads.high, err);
	}
}

/* ---- Moving ------------------------------------------------------------------------------------------- */

/* Copies a run of bytes of which at least one side is on the device. */
static int copy_run(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;
	struct tensor_extent reads = round->part.reads, writes = round->part.writes;
	size_t bytes = (size_t)(reads.high - reads.low);
	char *dst = cuda_memory(job->move.dst)->data;
	const char *src = cuda_memory(job->move.src)->data;

	round->last = round->own;
	if (src)
		return driver_call(err, cuMemcpyHtoDAsync,
		                   (round->dst + (uint64_t)writes.low, src + job->move.src_offset + reads.low,
		                    bytes, round->own));
	return driver_call(
	    err, cuMemcpyDtoHAsync,
	    (dst + job->move.dst_offset + writes.low, round->src + (uint64_t)reads.low, bytes, round->own));
}

/* A kernel on this many multiprocessors is as fast as the bus; the rest of the device is left to others. */
#define BUS_MULTIPROCESSORS 32

/* Returns whether the round's kernel reads or writes host memory itself. */
static bool is_over_bus(const struct round *round)
{
	const struct engine_job *job = round->job;
	const struct staging *s = round->staging;

	if (job_is_many(job))
		return job_is_by_bus(job);
	return (s->src == STAGING_DIRECT && cuda_memory(job->move.src)->host) ||
	       (s->dst == STAGING_DIRECT && cuda_memory(job->move.dst)->host);
}

/* Prepares the launcher for the round's kernel. Copies of many rows of host memory lose a third of their
 * speed while a kernel fills the L2 cache, probably because that cache also holds the page tables for those
 * rows; so the kernel is told that the slot's bytes need not be kept in the cache. A kernel also gets fewer
 * multiprocessors if rows are copied in both directions, or if it uses the bus itself. */
static void set_launcher(const struct round *round)
{
	const struct staging *s = round->staging;
	const bool has_rows = s->src == STAGING_STRIPE || s->dst == STAGING_STRIPE;
	struct launcher *launcher = &round->equipment->launcher;

	launcher_set_job(launcher, round->job->share.multiprocessors);
	if (has_rows) {
		launcher->passing.start = staging_slot_place(s, round->scratch, round->i);
		launcher->passing.bytes = staging_slot_bytes(s);
	}
	if (((has_rows && s->src == s->dst) || is_over_bus(round)) &&
	    (launcher->multiprocessors == 0 || launcher->multiprocessors > BUS_MULTIPROCESSORS))
		launcher->multiprocessors = BUS_MULTIPROCESSORS;
}

/* Moves a part of a transform by a plan that is made for this part. */
static int move_part(struct round *round, uint64_t dst, uint64_t src, struct error *err)
{
	struct engine_plan *plan =
	    cuda_plan_of_round(round->equipment->plans, &round->part.transform, dst, src);
	int r;

	if (!plan)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	r = launch_transform(&round->equipment->launcher, round->own, &plan->transform, cuda_plan(plan), dst,
	                     src, NULL, err);
	engine_plan_unref(plan);
	return r;
}

static int move(struct round *round, struct error *err)
{
	const struct staging *s = round->staging;
	struct launcher *launcher = &round->equipment->launcher;
	uint64_t dst = s->dst == STAGING_DIRECT ? round->dst : scratch_dst(round);
	uint64_t src = s->src == STAGING_DIRECT ? round->src : scratch_src(round);
	int r;

	set_launcher(round);
	if (s->run)
		return s->src == STAGING_DIRECT ? copy_run(round, err) : 0;
	r = round_pass(round, round->own, err);
	if (r < 0)
		return r;
	if (job_is_many(round->job) || round->job->move.transform->conversion.is)
		return many_launch(&(struct many){ launcher, round->upload_buffer, round->job, round->own },
		                   err);
	if (s->rounds == 1 && s->src != STAGING_STRIPE && s->dst != STAGING_STRIPE)
		return launch_transform(launcher, round->own, s->transform, s->plan, dst, src, NULL, err);
	if (s->dst != STAGING_STRIPE)
		dst += (uint64_t)round->part.dst_offset;
	return move_part(round, dst, src, err);
}

/* ---- Taking the destination out ----------------------------------------------------------------------- */

static int take_out(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;
	struct tensor_extent writes = round->part.writes;
	char *host;
	int r;

	if (round->staging->dst == STAGING_DIRECT)
		return 0;
	r = round_pass(round, round->out, err);
	if (r < 0)
		return r;
	host = cuda_memory(job->move.dst)->data + (int64_t)job->move.dst_offset + writes.low;
	if (round->staging->dst == STAGING_STRIPE)
		return copy_rows(&round->part.dst_box, host, scratch_dst(round), true, round->out, err);
	return driver_call(err, cuMemcpyDtoHAsync,
	                   (host, scratch_dst(round) + (uint64_t)writes.low,
	                    (size_t)(writes.high - writes.low), round->out));
}

int round_carry(struct round *round, struct error *err)
{
	int r = bring_in(round, err);

	if (r == 0)
		r = move(round, err);
	return r < 0 ? r : take_out(round, err);
}

/* ---- Jobs at once -------------------------------------------------------------------------------------- */

/* A move in a batch that has more bytes than this gets a launch of its own, by its own plan. */
#define ALONE_BYTES (1u << 20)

/* A batch whose upload buffer is borrowed consists of the parts of one transform with split dimensions
 * (kernels/transform/split.h), and its tables take less than this many bytes. */
#define BATCH_ROOM (64u << 10)

static uint64_t address_of(struct engine_memory *memory, uint64_t offset)
{
	return cuda_memory(memory)->address + offset;
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

static int64_t number_at(const struct engine_blocks *blocks, const void *list, uint64_t i)
{
	return blocks->index_bytes == 8 ? ((const int64_t *)list)[i] : ((const int32_t *)list)[i];
}

/* Copies a list that came with the job to the upload buffer. Its entries have been checked; those that name
 * no block are counted. Returns the copy, or NULL if the buffer is full. */
static const void *lay_index(struct upload_buffer *upload_buffer, struct engine_blocks *blocks)
{
	const size_t bytes = (size_t)blocks->n * blocks_entry_bytes(blocks);
	const unsigned char *from = blocks->index;
	void *to = upload_buffer_take(upload_buffer, bytes);

	if (!to)
		return NULL;
	memcpy(to, from, bytes);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = number_at(blocks, to, i << blocks->pairs);
		const int64_t other = blocks->pairs ? number_at(blocks, to, 2 * i + 1) : 0;
		const bool is_passed = entry == -1 || other == -1;

		blocks->passed += is_passed;
		blocks->beyond += !is_passed && ((uint64_t)entry >= blocks->limit ||
		                                 (blocks->pairs && (uint64_t)other >= blocks->dst_limit));
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

/* Returns the bytes that the job's lists take in the upload buffer. */
static size_t lists_room(const struct engine_blocks *blocks)
{
	const size_t index =
	    blocks->index ? upload_buffer_room((size_t)blocks->n * blocks_entry_bytes(blocks)) : 0;

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
		.dst_limit = blocks->dst_limit,
		.number_bytes = blocks->index_bytes,
		.scatter = blocks->scatter,
		.pairs = blocks->pairs,
		.by_n = divisor_of(blocks->n),
	};
}

/* Writes the job's lists to the upload buffer, sends it, and sets *ret_base to the device address of its
 * start. */
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

/* Launches a list by a plan that was made for it. */
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
		list.number_bytes = enclosed;
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
	list.counts = listed->counts;
	blocks->family = cuda_plan(plan)->family;
	r = launch_blocks(launcher, stream, move->transform, cuda_plan(plan), dst, src, NULL, blocks, &list,
	                  err);
	engine_plan_unref(plan);
	return r;
}

/* ---- Batches ------------------------------------------------------------------------------------------ */

/* The tables of a batch, in the upload buffer. A move that goes by a table has its kernel in `kernel` and the
 * place of its entry in `entry`; other moves have one of the KERNEL_ values below. */
struct batch {
	struct many of;
	uint64_t base; /* device address of the upload buffer's start */
	struct run_entry *runs;
	uint32_t n_runs;
	uint16_t *kernel; /* kernel of each move */
	uint32_t *entry;  /* for each move that has an entry: bytes from the upload buffer's start to it */
	uint32_t *blocks; /* number of thread blocks of each move */
	uint32_t *which;  /* entries of the moves, grouped by kernel */
	/* For each group: the number of thread blocks before each of its moves, and their total number. */
	uint32_t *first;
};

#define KERNEL_RUN   KERNEL_COUNT       /* moved by the table of runs */
#define KERNEL_ALONE (KERNEL_COUNT + 1) /* launched alone, by its own plan */
#define KERNEL_NONE  (KERNEL_COUNT + 2) /* nothing to do, or already in a group */

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

/* Returns a plan for the move that can share a launch with others, for which it must not need a tensor map.
 * Takes a reference to the plan. Returns NULL if there is no memory. */
static struct engine_plan *plain_plan(struct engine_plan *plan, uint64_t dst, uint64_t src)
{
	if (!strategy_of(cuda_plan(plan))->spreads)
		return cuda_plan_of_member(plan, dst | src);
	engine_plan_ref(plan);
	return plan;
}

/* Writes the move's table entry to the upload buffer. Returns false if the move cannot be in a table, or if
 * the buffer is full. */
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

/* Returns how the move is to travel, and writes its table entry if it goes by a table. */
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

/* Moves that one launch carries out. */
struct group {
	uint32_t kernel;
	uint32_t start; /* index of the group's first element in batch->which */
	uint32_t first; /* index of the group's first element in batch->first */
	uint32_t n;
	uint32_t blocks;
};

/* Adds to the group those of the moves from number i on that use its kernel, as long as one launch can have
 * all of their thread blocks. */
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

/* Forms groups of one kernel each. There are at most KERNEL_COUNT of them, unless the moves of a kernel have
 * too many thread blocks for one launch; those left over are launched alone. */
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

/* Launches the tables of a batch. parts is the number of parts of all runs, as runs_lay returned it. */
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
	r = launch_transform(
	    many->launcher, many->stream, move->transform, many->plan ? many->plan : cuda_plan(move->plan),
	    address_of(move->dst, move->dst_offset), address_of(move->src, move->src_offset), &operands, err);
	return r < 0 ? r : upload_buffer_fetch_changed(upload_buffer, many->job, many->stream, err);
}

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
