/* SPDX-License-Identifier: Apache-2.0 */
/* Reads index lists, and divides a running job into work items; work_item.c executes them. */
#include "running_job.h"

#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/host/memory.h"
#include "kernels/host/fault.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"

static void start_moves(struct running_job *running, struct engine_job *job);
static void start_blocks(struct running_job *running, const struct engine_job *job);
static void work_item_moves(struct running_job *running, struct work_item *ret);
static void work_item_blocks(struct running_job *running, struct work_item *ret);
static void settle(struct running_job *running);

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* ---- Start ------------------------------------------------------------------------------------------ */

/* Chooses the size of a work item. bytes is the sum over all destinations. */
static void choose_piece(struct running_job *running, uint64_t bytes)
{
	uint64_t piece = bytes / (4 * (uint64_t)running->threads);
	/* Plans are kept separately for each size of pieces, so batches and lists use powers of two, of which
	 * there are few. */
	if (running->job->moves || running->job->blocks)
		piece = piece ? UINT64_C(1) << (63 - __builtin_clzll(piece)) : 0;
	if (piece < (uint64_t)running->tuning->piece_least)
		piece = (uint64_t)running->tuning->piece_least;
	if (piece > (uint64_t)running->tuning->piece_most)
		piece = (uint64_t)running->tuning->piece_most;
	running->piece = (int64_t)piece;
	running->stream = bytes >= (uint64_t)running->tuning->stream_bytes;
}

void running_job_start(struct running_job *running, struct engine_job *job, const struct cpu_tuning *tuning,
                       uint32_t threads)
{
	running->job = job;
	running->tuning = tuning;
	running->threads = threads;
	running->partitioned = NULL;
	running->partitioned_layer = 0;
	running->partitioner.n = running->partitioner.next = 0;
	running->partitioner.move.pieces = running->partitioner.next_piece = 0;
	running->partitioner.groups = NULL;
	running->active = 0;
	running->is_waking = false;
	running->status = 0;
	running->start_ns = clock_ns();
	atomic_init(&running->stopped, false);
	if (job->blocks)
		start_blocks(running, job);
	else
		start_moves(running, job);
}

void running_job_start_waking(struct running_job *running, struct engine_job *job)
{
	running->job = job;
	running->active = 0;
	running->is_waking = true;
	running->is_counted = false;
	running->wakes_left = 0;
	running->status = 0;
	atomic_init(&running->stopped, false);
}

static struct engine_move *moves_of(struct engine_job *job, uint32_t *ret_n)
{
	*ret_n = job->moves ? job->n_moves : 1;
	return job->moves ? job->moves : &job->move;
}

void running_job_clear(struct engine_job *job)
{
	uint32_t n;
	struct engine_move *moves = moves_of(job, &n);
	job->status = 0;
	job->ns = 0;
	job->begun = false;
	job->is_measured = false;
	for (uint32_t i = 0; i < n; i++) {
		moves[i].status = STATUS_CANCELED;
		moves[i].changed = 0;
		moves[i].family = cpu_plan(moves[i].plan)->family;
	}
	if (job->blocks) {
		job->blocks->family = job->move.family;
		job->blocks->passed = job->blocks->beyond = 0;
	}
}

uint32_t running_job_ranges(const struct engine_move *move, struct fault_range ret[RUNNING_JOB_RANGES])
{
	uint32_t n = 0;
	ret[n++] = host_memory(move->dst)->mapped;
	ret[n++] = host_memory(move->src)->mapped;
	for (int i = 0; i < ROLE_COUNT; i++)
		if (move->operand[i].memory)
			ret[n++] = host_memory(move->operand[i].memory)->mapped;
	return n;
}

static void start_moves(struct running_job *running, struct engine_job *job)
{
	uint64_t bytes = 0;
	running->moves = moves_of(job, &running->n_moves);
	running->next_move = 0;
	running->left = 0;
	for (uint32_t i = 0; i < running->n_moves; i++) {
		const struct engine_move *move = &running->moves[i];
		running->left =
		    add(running->left, (uint64_t)task_cost(move->transform, cpu_plan(move->plan)));
		bytes = add(bytes, (uint64_t)(move->transform->count * move->transform->element));
	}
	choose_piece(running, bytes);
}

static void start_blocks(struct running_job *running, const struct engine_job *job)
{
	const struct transform *t = job->move.transform;
	struct running_blocks *b = &running->blocks;
	uint64_t cost = (uint64_t)task_cost(t, cpu_plan(job->move.plan));
	running->n_moves = 0;
	b->left = multiply(job->blocks->n, job->blocks->layers);
	choose_piece(running, multiply((uint64_t)(t->count * t->element), b->left));
	b->most = WORK_ITEM_BLOCKS_MOST;
	if (cost > (uint64_t)running->piece)
		b->most = 0;
	else if (cost && (uint64_t)running->piece / cost < b->most)
		b->most = (uint32_t)((uint64_t)running->piece / cost);
	b->layer = job->blocks->layers;
	b->at = 0;
	b->next = 0;
	b->reading = b->ahead = false;
	b->current = 0;
	settle(running);
}

/* ---- Work items ------------------------------------------------------------------------------------- */

/* Returns whether a work item can read the next group. Only a list in a region is read by a work item. */
static bool may_read(const struct running_job *running)
{
	const struct running_blocks *b = &running->blocks;
	const struct engine_blocks *blocks = running->job->blocks;
	return !blocks->index && !b->reading && !b->ahead && b->next < blocks->n;
}

/* Returns approximately how many work items come after those of the partitioner; at least 1 if one can be had
 * now. */
static uint64_t work_items_to_come(const struct running_job *running)
{
	const struct engine_job *job = running->job;
	const struct running_blocks *b = &running->blocks;
	if (!job->blocks)
		return running->next_move < running->n_moves ? running->left / (uint64_t)running->piece + 1
		                                             : 0;
	if (b->layer == job->blocks->layers && !may_read(running))
		return 0;
	return b->most ? divide_up_u64(b->left, b->most) + may_read(running) : UINT32_MAX;
}

/* Returns how many more threads may take work items of the job, UINT_MAX if it has no limit. */
static unsigned room_of(const struct running_job *running)
{
	const uint32_t limit = running->job->share.host_threads;

	return limit == 0 ? UINT_MAX : limit > running->active ? limit - running->active : 0;
}

unsigned running_job_work_items(const struct running_job *running, unsigned most)
{
	if (!running->job || running->status)
		return 0;
	if (most > room_of(running))
		most = room_of(running);
	if (running->is_waking)
		return running->active == 0 && (!running->is_counted || running->wakes_left > 0);
	if (partitioner_waits(&running->partitioner))
		return 0;
	unsigned parts = partitioner_left(&running->partitioner, most);
	uint64_t work_items = work_items_to_come(running);
	return work_items < most - parts ? parts + (unsigned)work_items : most;
}

/* Returns the address of the operand, or of the number itself. For a result that is not written, the address
 * is not used but must not be NULL. */
static char *operand_at(struct engine_operand *operand)
{
	if (!operand->memory)
		return (char *)&operand->number;
	return host_memory(operand->memory)->data + (int64_t)operand->offset;
}

struct convert_place running_job_conversion(struct engine_move *move)
{
	return (struct convert_place){ .conversion = &move->transform->conversion,
		                       .scale = operand_at(&move->operand[ROLE_SCALE]),
		                       .bias = operand_at(&move->operand[ROLE_BIAS]),
		                       .changed = &move->changed,
		                       .amax_scale = operand_at(&move->operand[ROLE_AMAX_SCALE]),
		                       .amax_inverse = operand_at(&move->operand[ROLE_AMAX_INVERSE]) };
}

struct task running_job_task(const struct running_job *running, struct engine_move *move)
{
	struct task task = { .isa = running->tuning->isa,
		             .transform = move->transform,
		             .plan = cpu_plan(move->plan),
		             .place = { .dst = host_memory(move->dst)->data + (int64_t)move->dst_offset,
		                        .src = host_memory(move->src)->data + (int64_t)move->src_offset,
		                        .fill = move->transform->fill,
		                        .fill_bytes = move->transform->element,
		                        .mode = move->transform->mode,
		                        .piece_bytes = running->piece,
		                        .tiled_bytes = running->tuning->tiled_bytes,
		                        .stream = running->stream,
		                        .kept = &cpu_plan(move->plan)->kept },
		             .probe_bytes = running->tuning->probe_bytes,
		             .cold_ns = running->tuning->cold_ns };
	if (move->transform->conversion.is)
		task.place.conversion = running_job_conversion(move);
	return task;
}

struct task running_job_whole_task(const struct running_job *running, struct engine_move *move)
{
	struct task task = running_job_task(running, move);
	task.place.piece_bytes = running->tuning->piece_most;
	return task;
}

static void work_item_wake(const struct running_job *running, struct work_item *ret)
{
	ret->kind = running->is_counted ? WORK_ITEM_WAKE : WORK_ITEM_COUNT;
	ret->n = running->wakes_left < TIMELINE_WAKE_MORE ? running->wakes_left : TIMELINE_WAKE_MORE;
}

/* Divides a task, which is the move or a block of it, into partitions. */
static void start_partitions(struct running_job *running, struct engine_move *move, const struct task *task)
{
	partitioner_init(&running->partitioner, task, running->threads);
	running->partitioned = move;
}

static void work_item_partition(struct running_job *running, struct work_item *ret)
{
	ret->kind = WORK_ITEM_PARTITION;
	ret->move = running->partitioned;
	ret->layer = running->partitioned_layer;
	partitioner_next(&running->partitioner, &ret->partition);
	if (partitioner_is_over(&running->partitioner))
		running->partitioned->status = 0; /* unless a partition ends with another status */
}

void running_job_work_item(struct running_job *running, struct work_item *ret)
{
	ret->running = running;
	ret->n = 0;
	ret->layers = 0;
	running->active++;
	if (running->is_waking)
		work_item_wake(running, ret);
	else if (partitioner_left(&running->partitioner, 1))
		work_item_partition(running, ret);
	else if (running->job->blocks)
		work_item_blocks(running, ret);
	else
		work_item_moves(running, ret);
}

/* ---- Moves ------------------------------------------------------------------------------------------ */

static void work_item_moves(struct running_job *running, struct work_item *ret)
{
	uint64_t sum = 0;
	ret->kind = WORK_ITEM_MOVES;
	ret->move = &running->moves[running->next_move];
	for (; running->next_move < running->n_moves && sum < (uint64_t)running->piece; ret->n++) {
		struct engine_move *move = &running->moves[running->next_move];
		uint64_t cost = (uint64_t)task_cost(move->transform, cpu_plan(move->plan));
		if (cost > (uint64_t)running->piece && ret->n)
			break;
		running->next_move++;
		running->left -= running->left == UINT64_MAX ? 0 : cost;
		if (cost > (uint64_t)running->piece) {
			struct task task = running_job_task(running, move);
			task.groups = &running->groups;
			start_partitions(running, move, &task);
			work_item_partition(running, ret);
			return;
		}
		sum += cost;
	}
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

/* Reads the next group of entries if the list is in host memory, and makes it the current one once all of the
 * current one has been handed out. */
static void settle(struct running_job *running)
{
	struct engine_blocks *blocks = running->job->blocks;
	struct running_blocks *b = &running->blocks;
	for (;;) {
		if (blocks->index && !b->ahead && b->next < blocks->n) {
			index_list_read(blocks, b->next, &b->group[!b->current]);
			b->next += b->group[!b->current].n;
			b->ahead = true;
		}
		if (b->layer < blocks->layers || !b->ahead)
			return;
		b->current = !b->current;
		b->ahead = false;
		b->layer = b->at = 0;
		if (b->group[b->current].named == 0) {
			b->left -= multiply(b->group[b->current].n, blocks->layers);
			b->layer = blocks->layers;
		}
	}
}

/* Advances past the next n entries of the current group, which have been handed out in `layers` layers. */
static void go_on(struct running_job *running, uint32_t n, uint32_t layers)
{
	struct running_blocks *b = &running->blocks;
	b->left -= (uint64_t)n * layers;
	b->at += n;
	if (b->at == b->group[b->current].n) {
		b->at = 0;
		b->layer += layers;
	}
	settle(running);
}

/* Divides the current entry's block into partitions, and hands out the first of them. If the entry is
 * skipped, the work item is empty. */
static void work_item_block(struct running_job *running, struct work_item *ret)
{
	const struct running_blocks *b = &running->blocks;
	const struct index_list_group *group = &b->group[b->current];
	const struct index_list_entry *entry = &group->entry[b->at];
	ret->kind = WORK_ITEM_BLOCKS;
	if (entry->dst >= 0) {
		struct task task = running_job_task(running, &running->job->move);
		index_list_place(running->job, entry, b->layer, &task.place);
		start_partitions(running, &running->job->move, &task);
		running->partitioned_layer = b->layer;
		work_item_partition(running, ret);
	}
	go_on(running, 1, 1);
}

/* Returns how many layers a work item takes if it takes n entries in each of them. */
static uint32_t layers_of_item(const struct running_job *running, uint32_t n)
{
	const struct running_blocks *b = &running->blocks;
	const uint32_t left = running->job->blocks->layers - b->layer, most = b->most / n;
	return most < left ? most : left;
}

static void work_item_blocks(struct running_job *running, struct work_item *ret)
{
	struct running_blocks *b = &running->blocks;
	const struct index_list_group *group = &b->group[b->current];
	ret->move = &running->job->move;
	if (may_read(running)) {
		ret->kind = WORK_ITEM_READ;
		b->reading = true;
		return;
	}
	if (!b->most) {
		work_item_block(running, ret);
		return;
	}
	ret->kind = WORK_ITEM_BLOCKS;
	ret->n = group->n - b->at < b->most ? group->n - b->at : b->most;
	ret->layer = b->layer;
	ret->layers = ret->n == group->n ? layers_of_item(running, group->n) : 1;
	memcpy(ret->entry, &group->entry[b->at], ret->n * sizeof(ret->entry[0]));
	go_on(running, ret->n, ret->layers);
}

/* ---- The end ---------------------------------------------------------------------------------------- */

static void end_reading(struct running_job *running, int status)
{
	struct running_blocks *b = &running->blocks;
	b->reading = false;
	if (status)
		return;
	b->next += b->group[!b->current].n;
	b->ahead = true;
	settle(running);
}

void running_job_end_work_item(struct running_job *running, const struct work_item *work_item, int status)
{
	running->active--;
	if (work_item->kind == WORK_ITEM_COUNT) {
		running->is_counted = true;
		running->wakes_left = work_item->n;
		return;
	}
	if (work_item->kind == WORK_ITEM_WAKE) {
		running->wakes_left -= work_item->n < TIMELINE_WAKE_MORE ? running->wakes_left : work_item->n;
		return;
	}
	if (work_item->kind == WORK_ITEM_PARTITION && running->partitioned == work_item->move)
		partitioner_end(&running->partitioner);
	if (work_item->kind == WORK_ITEM_READ)
		end_reading(running, status);
	if (!status)
		return;
	if (running->job->blocks) {
		running_job_stop(running, status);
		return;
	}
	if (work_item->move->status != STATUS_DEVICE)
		work_item->move->status = status;
	if (running->partitioned == work_item->move)
		partitioner_stop(&running->partitioner);
}

void running_job_stop(struct running_job *running, int status)
{
	if (running->is_waking)
		return;
	if (!running->status)
		running->status = status;
	atomic_store_explicit(&running->stopped, true, memory_order_relaxed);
}

void running_job_judge(struct engine_move *move)
{
	if (!move->status && move->changed)
		move->status = STATUS_OUT_OF_RANGE;
}

bool running_job_end(struct running_job *running, struct engine_job **ret)
{
	if (running->active || running_job_work_items(running, 1))
		return false;
	assert(running->job);
	struct engine_job *job = running->job;
	*ret = job;
	running->job = NULL;
	if (running->is_waking)
		return true;
	job->status = running->status;
	for (uint32_t i = 0; i < running->n_moves; i++)
		running_job_judge(&running->moves[i]);
	for (uint32_t i = 0; i < running->n_moves && !job->status; i++)
		job->status = running->moves[i].status;
	if (job->blocks && !job->status && job->move.changed)
		job->status = STATUS_OUT_OF_RANGE;
	job->ns = clock_ns() - running->start_ns;
	return true;
}

/* ---- Index lists ------------------------------------------------------------------------------------ */

/* Entries may lie at any address. They are volatile so that the value that is checked is the one that is
 * used, although clients may change it at any time. */
typedef volatile uint32_t __attribute__((aligned(1), may_alias)) entry4;
typedef volatile uint64_t __attribute__((aligned(1), may_alias)) entry8;

static const char *list_start(const struct engine_blocks *blocks)
{
	if (blocks->index)
		return blocks->index;
	return host_memory(blocks->index_memory)->data + blocks->index_offset;
}

static int64_t read_number(const char *at, uint8_t bytes)
{
	if (bytes == 4)
		return (int32_t)le32toh(*(const entry4 *)(const void *)at);
	return (int64_t)le64toh(*(const entry8 *)(const void *)at);
}

/* Reads entry i, whose address is `at`. */
static struct index_list_entry read_entry(const struct engine_blocks *blocks, const char *at, uint64_t i)
{
	const uint8_t bytes = blocks->index_bytes;
	const int64_t number = read_number(at, bytes);
	if (blocks->pairs)
		return (struct index_list_entry){ .dst = read_number(at + bytes, bytes), .src = number };
	return blocks->scatter ? (struct index_list_entry){ .dst = number, .src = (int64_t)i }
	                       : (struct index_list_entry){ .dst = (int64_t)i, .src = number };
}

static bool has_a_pass(const struct index_list_entry *entry)
{
	return entry->dst == -1 || entry->src == -1;
}

static bool names_blocks(const struct engine_blocks *blocks, const struct index_list_entry *entry)
{
	return entry->dst >= 0 && (uint64_t)entry->dst < blocks_dst_count(blocks) && entry->src >= 0 &&
	       (uint64_t)entry->src < blocks_src_count(blocks);
}

void index_list_read(struct engine_blocks *blocks, uint64_t first, struct index_list_group *ret)
{
	const char *at = list_start(blocks) + first * blocks_entry_bytes(blocks);
	uint64_t left = blocks->n - first;
	ret->first = first;
	ret->named = 0;
	ret->n = left < INDEX_LIST_GROUP ? (uint32_t)left : INDEX_LIST_GROUP;
	for (uint32_t i = 0; i < ret->n; i++, at += blocks_entry_bytes(blocks)) {
		struct index_list_entry entry = read_entry(blocks, at, first + i);
		if (has_a_pass(&entry))
			blocks->passed++;
		else if (!names_blocks(blocks, &entry))
			blocks->beyond++;
		else
			ret->named++;
		if (!names_blocks(blocks, &entry))
			entry.dst = entry.src = -1;
		ret->entry[i] = entry;
	}
}

uint32_t index_list_named(const struct engine_blocks *blocks)
{
	const char *at = list_start(blocks);
	uint32_t n = 0;
	for (uint64_t i = 0; i < blocks->n; i++, at += blocks_entry_bytes(blocks)) {
		const struct index_list_entry entry = read_entry(blocks, at, i);
		n += !has_a_pass(&entry);
	}
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

/* Returns the bytes from the move's offset to a block, modulo 2^64: steps and distances to other memories may
 * be negative. */
static uint64_t side_at(const struct engine_blocks_side *side, uint64_t block, uint32_t layer)
{
	uint64_t of_layer = side->layers ? (uint64_t)side->layers[layer] : layer * side->layer_step;
	return block * side->step + of_layer;
}

void index_list_place(const struct engine_job *job, const struct index_list_entry *entry, uint32_t layer,
                      struct move_place *ret)
{
	const struct engine_blocks *blocks = job->blocks;
	const struct engine_move *move = &job->move;
	ret->dst = host_memory(move->dst)->data +
	           (int64_t)(move->dst_offset + side_at(&blocks->dst, (uint64_t)entry->dst, layer));
	ret->src = host_memory(move->src)->data +
	           (int64_t)(move->src_offset + side_at(&blocks->src, (uint64_t)entry->src, layer));
}
