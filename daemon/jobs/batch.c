/* SPDX-License-Identifier: Apache-2.0 */
/* Implements batches and spreads. A batch's memory is kept for reuse; its result is a status for each item
 * and error messages ("sentences") for the first items that failed. A spread runs a request on several
 * devices, in steps. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "proto/status.h"
#include "blocks_job.h"
#include "job.h"
#include "table.h"

/* Minimum number of items for which a batch is allocated, and maximum number of items or moves of a batch
 * that is kept. */
#define ROOM_LEAST     64
#define ROOM_KEPT_MOST 1024

/* Bytes that an error takes in a reply besides its message. */
#define ERROR_BYTES 64

#define UNSAID SIZE_MAX /* value of batch_item.sentence: the message was not kept */

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void deallocate(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->items);
	free(batch->statuses);
	free(batch->moves);
	free(batch);
}

static struct batch *allocate(uint32_t room)
{
	struct batch *batch = malloc(sizeof *batch);

	if (!batch)
		return NULL;
	*batch = (struct batch){ .room = room };
	batch->items = malloc(room * sizeof *batch->items);
	batch->statuses = malloc(room * sizeof *batch->statuses);
	if (batch->items && batch->statuses)
		return batch;
	deallocate(batch);
	return NULL;
}

/* Makes room for n items beyond the number passed to batch_new, because some items of the request become
 * several. Returns false if out of memory. */
static bool make_item_room(struct batch *batch, uint32_t n)
{
	const uint32_t room = batch->room + n;
	struct batch_item *items = realloc(batch->items, room * sizeof *items);
	int32_t *statuses;

	if (items)
		batch->items = items;
	statuses = items ? realloc(batch->statuses, room * sizeof *statuses) : NULL;
	if (!statuses)
		return false;
	batch->statuses = statuses;
	batch->room = room;
	return true;
}

/* Makes room for n more moves. Returns false if out of memory. */
static bool make_room(struct batch *batch, uint32_t n)
{
	uint32_t room = batch->moves_room ?: batch->room;
	struct engine_move *moves;

	if (batch->moves_room - batch->n_moves >= n)
		return true;
	while (room - batch->n_moves < n)
		room *= 2;
	moves = realloc(batch->moves, room * sizeof *moves);
	if (!moves)
		return false;
	batch->moves = moves;
	batch->moves_room = room;
	return true;
}

struct batch *batch_new(struct service *service, uint32_t n)
{
	struct batch *batch = service->kept_batch;

	if (batch && batch->room >= n)
		service->kept_batch = NULL;
	else
		batch = allocate(n < ROOM_LEAST ? ROOM_LEAST : n);
	if (!batch)
		return NULL;
	batch->service = service;
	batch->n = batch->n_asked = batch->n_good = batch->n_moves = 0;
	batch->errors_bytes = service->limits.reply_pause_bytes;
	if (make_room(batch, 1)) /* engine_job.moves must not be NULL in a batch, even without moves */
		return batch;
	deallocate(batch);
	return NULL;
}

/* Calls act, which is region_use or region_unuse, for each region that the item holds. */
static void each_region(const struct batch_item *item, void (*act)(struct region *region))
{
	act(item->dst);
	act(item->src);
	for (int i = 0; i < ROLE_COUNT; i++)
		if (item->operand[i])
			act(item->operand[i]);
}

void batch_free(struct batch *batch)
{
	struct service *service = batch ? batch->service : NULL;

	if (!batch)
		return;
	for (uint32_t i = 0; i < batch->n_moves; i++)
		engine_plan_unref(batch->moves[i].plan);
	for (uint32_t i = 0; i < batch->n; i++) {
		if (!batch->items[i].n_moves)
			continue;
		each_region(&batch->items[i], region_unuse);
		table_unref(batch->items[i].dst_table);
		table_unref(batch->items[i].src_table);
	}
	buffer_deinit(&batch->sentences);
	if (!service->kept_batch && batch->room <= ROOM_KEPT_MOST && batch->moves_room <= ROOM_KEPT_MOST)
		service->kept_batch = batch;
	else
		deallocate(batch);
}

void batch_free_kept(struct service *service)
{
	deallocate(service->kept_batch);
}

/* ---- Items -------------------------------------------------------------------------------------------- */

/* Appends *item, with the operands of placed, and holds its regions. */
static void add_item(struct batch *batch, struct batch_item *item, const struct placed *placed)
{
	for (int i = 0; i < ROLE_COUNT; i++)
		item->operand[i] = placed->operand[i].region;
	batch->items[batch->n++] = *item;
	batch->n_asked += !item->continues;
	batch->n_good += !item->continues;
	each_region(item, region_use);
}

/* Takes over the caller's reference to plan. */
static void add_move(struct batch *batch, struct engine_plan *plan, const struct placed *placed)
{
	batch->moves[batch->n_moves++] = placed_move(plan, placed);
}

int batch_add(struct batch *batch, struct parts *parts, struct error *err)
{
	const struct placed *placed = &parts->placed;
	struct batch_item item;

	if (!make_room(batch, parts->n)) {
		parts_unref(parts);
		return error_set(err, STATUS_NO_MEMORY, "no memory for the parts of a transform");
	}
	item = (struct batch_item){ .device = placed->device,
		                    .n_moves = parts->n,
		                    .largest = parts->largest,
		                    .dst = placed->dst,
		                    .src = placed->src };
	add_item(batch, &item, placed);
	for (uint32_t i = 0; i < parts->n; i++) {
		const struct part *part = &parts->part[i];
		const struct placed at = placed_part(placed, part->dst_offset, part->src_offset);

		add_move(batch, part->plan, &at);
	}
	return 0;
}

/* Adds the entries of the list's tables that run on the device as one item. */
static void add_runs(struct batch *batch, const struct blocks_job *list, uint32_t device, bool continues)
{
	struct engine_plan *plan = list->plan[device];
	const struct placed *placed = &list->placed;
	struct batch_item item = { .device = device,
		                   .continues = continues,
		                   .dst_table = table_ref(list->dst_table),
		                   .src_table = table_ref(list->src_table) };

	for (uint32_t i = 0; i < list->blocks.layers; i++) {
		struct placed at = *placed;

		if (blocks_job_device(list, i) != device)
			continue;
		at.device = device;
		blocks_job_place(list, i, &at);
		if (item.n_moves++ == 0) { /* the tables hold the regions of the other moves */
			item.dst = at.dst;
			item.src = at.src;
		}
		engine_plan_ref(plan);
		add_move(batch, plan, &at);
	}
	add_item(batch, &item, placed);
}

int batch_add_tables(struct batch *batch, const struct blocks_job *list, struct error *err)
{
	const uint32_t n = list->blocks.layers;
	uint32_t devices[ENGINES_MOST];
	const uint32_t n_devices = blocks_job_devices(list, devices);

	if (!make_room(batch, n) || (n_devices > 1 && !make_item_room(batch, n_devices - 1)))
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " moves", n);
	for (uint32_t d = 0; d < n_devices; d++)
		add_runs(batch, list, devices[d], d > 0);
	return 0;
}

/* Appends the error's message to batch->sentences and returns its offset there. Returns UNSAID if the reply
 * will have no room for it, or if out of memory. */
static size_t keep_sentence(struct batch *batch, const struct error *error)
{
	char sentence[sizeof error->message];
	size_t len = text_clean(error->message, strnlen(error->message, sizeof error->message), sentence,
	                        sizeof sentence);
	size_t at = buffer_len(&batch->sentences);

	if (at < batch->errors_bytes && buffer_append(&batch->sentences, sentence, len + 1) == 0)
		return at;
	return UNSAID;
}

void batch_refuse(struct batch *batch, const struct error *error)
{
	batch->items[batch->n] = (struct batch_item){ .sentence = keep_sentence(batch, error) };
	batch->statuses[batch->n++] = error->status;
	batch->n_asked++;
}

/* ---- The result --------------------------------------------------------------------------------------- */

static uint64_t moved_bytes(const struct engine_move *moves, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += moves[i].status ? 0 : moves[i].transform->bytes;
	return bytes;
}

static int status_of(const struct engine_move *moves, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (moves[i].status)
			return moves[i].status;
	return 0;
}

uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret)
{
	*ret = moves[item->largest].family;
	return moved_bytes(moves, item->n_moves);
}

int batch_item_status(const struct batch_item *item, const struct engine_move *moves)
{
	return status_of(moves, item->n_moves);
}

void batch_explain_cast(const struct engine_move *moves, uint32_t n, struct error *err)
{
	const struct conversion *conversion = NULL;
	uint64_t changed = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (moves[i].changed > 0)
			conversion = &moves[i].transform->conversion;
		changed += moves[i].changed;
	}
	if (!conversion)
		conversion = &moves->transform->conversion;
	request_explain_changed(conversion, changed, err);
}

/* Returns how many items, from item i on, belong to one item of the request: item i and those that continue
 * it. Sets *ret_moves to the number of their moves. */
static uint32_t batch_asked(const struct batch *batch, uint32_t i, uint32_t *ret_moves)
{
	uint32_t n = 0;

	*ret_moves = 0;
	do
		*ret_moves += batch->items[i + n++].n_moves;
	while (i + n < batch->n && batch->items[i + n].continues);
	return n;
}

/* Fills in the first n_asked elements of batch->statuses, one for each item of the request, and the messages
 * of inexact casts. Returns how many items failed, and sets *ret_bytes to the bytes moved.
 *
 * batch_refuse has stored the status of a refused item at its index among all items. That index is never less
 * than the index that is written here, so no status is overwritten before it is read.
 */
static uint32_t take_statuses(struct batch *batch, uint64_t *ret_bytes)
{
	const struct engine_move *move = batch->moves;
	uint32_t n_bad = 0, asked = 0, n_moves;

	*ret_bytes = 0;
	for (uint32_t i = 0; i < batch->n; asked++) {
		struct batch_item *item = &batch->items[i];
		int32_t *status = &batch->statuses[asked];

		*status = batch->statuses[i];
		i += batch_asked(batch, i, &n_moves);
		if (n_moves) {
			*status = status_of(move, n_moves);
			if (*status == STATUS_OUT_OF_RANGE) {
				struct error err;

				batch_explain_cast(move, n_moves, &err);
				item->sentence = keep_sentence(batch, &err);
			}
			*ret_bytes += moved_bytes(move, n_moves);
			move += n_moves;
		}
		n_bad += *status != 0;
	}
	return n_bad;
}

/* Returns the errors of the n_bad items that failed, up to the first one whose message was not kept or does
 * not fit into the reply. Returns none if out of memory: the statuses are enough. */
static struct message_list errors_of(const struct batch *batch, uint32_t n_bad)
{
	struct msg_item_error *errors = n_bad ? calloc(n_bad, sizeof *errors) : NULL;
	struct message_list list = { .items = errors };
	uint64_t left = batch->errors_bytes;

	for (uint32_t i = 0, asked = 0, ignored; errors && i < batch->n; asked++) {
		const struct batch_item *item = &batch->items[i];
		int status = batch->statuses[asked];
		const char *sentence = status_meaning(status);

		i += batch_asked(batch, i, &ignored);

		if (status == 0)
			continue;
		if (!item->n_moves || status == STATUS_OUT_OF_RANGE) {
			if (item->sentence == UNSAID)
				break;
			sentence = (const char *)batch->sentences.data + item->sentence;
		}
		if (strlen(sentence) + ERROR_BYTES > left)
			break;
		left -= strlen(sentence) + ERROR_BYTES;
		errors[list.n++] = (struct msg_item_error){ .item = asked,
			                                    .name = bytes_of(status_name(status)),
			                                    .message = bytes_of(sentence) };
	}
	return list;
}

uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret)
{
	uint32_t n_bad = take_statuses(batch, &ret->bytes);

	ret->statuses = (struct code_list){ .codes = batch->statuses, .n = batch->n_asked };
	ret->errors = errors_of(batch, n_bad);
	return n_bad;
}

/* ==== On several devices ============================================================================= */

/* The functions below divide a request on several devices into steps, submit these, and combine their
 * outcomes into that of the request's job. */

#define NONE UINT32_MAX

struct spread_step {
	struct engine_job engine_job; /* must be first: on_step_done casts */
	struct spread *spread;
	uint32_t device;
	/* spread_cancel has canceled this step, but not all steps. on_step_done submits it again. */
	bool is_withdrawn;
	uint32_t *move; /* for each of the step's moves, its index in the batch */
	uint32_t after; /* index of the step that it comes after, or SPREAD_AT_ONCE */
	/* The steps that come after a step form a list. first is the index of the first step in this step's
	 * list, and next that of the next step in the list that this step is in. NONE ends a list. */
	uint32_t first, next;
};

struct spread {
	struct job *job;
	struct batch *batch;
	/* The job's own on_done and wait.memory, which end() replaces and on_signalled restores. */
	void (*on_done)(struct engine_job *job);
	struct engine_memory *wait;
	uint64_t ns;        /* sum of the ns of all steps */
	uint32_t under_way; /* number of steps that are under way */
	uint32_t left;      /* number of steps that have not started */
	bool is_stopped;
	uint32_t n;
	struct spread_step step[];
};

static void on_step_done(struct engine_job *engine_job);
static void on_signalled(struct engine_job *engine_job);

/* ---- Dividing ------------------------------------------------------------------------------------------ */

static struct spread *allocate_spread(struct job *job, struct batch *batch, uint32_t n)
{
	struct spread *spread = calloc(1, sizeof *spread + n * sizeof spread->step[0]);

	if (!spread)
		return NULL;
	spread->job = job;
	spread->batch = batch;
	spread->n = n;
	for (uint32_t s = 0; s < n; s++)
		spread->step[s] = (struct spread_step){
			.spread = spread, .after = SPREAD_AT_ONCE, .first = NONE, .next = NONE
		};
	return spread;
}

/* Sets the device and the number of moves of each step. step_of[i] is the step of item i. */
static void count_moves(struct spread *spread, const uint32_t *step_of)
{
	const struct batch *batch = spread->batch;

	for (uint32_t i = 0; i < batch->n; i++) {
		if (!batch->items[i].n_moves)
			continue;
		spread->step[step_of[i]].device = batch->items[i].device;
		spread->step[step_of[i]].engine_job.n_moves += batch->items[i].n_moves;
	}
}

/* Copies the batch's moves to the steps. The moves of all steps lie in one allocation, which spread_free
 * frees by the first step's pointer. Returns false if out of memory. */
static bool take_moves(struct spread *spread, const uint32_t *step_of)
{
	const struct batch *batch = spread->batch;
	struct engine_move *moves = malloc(batch->n_moves * (sizeof *moves + sizeof(uint32_t)));
	uint32_t *index, move = 0;

	if (!moves)
		return false;
	index = (uint32_t *)(moves + batch->n_moves);
	for (uint32_t s = 0; s < spread->n; s++) {
		struct spread_step *step = &spread->step[s];

		step->engine_job.moves = moves;
		step->move = index;
		moves += step->engine_job.n_moves;
		index += step->engine_job.n_moves;
		step->engine_job.n_moves = 0;
	}
	for (uint32_t i = 0; i < batch->n; i++)
		for (uint32_t m = 0; m < batch->items[i].n_moves; m++, move++) {
			struct spread_step *step = &spread->step[step_of[i]];
			const uint32_t at = step->engine_job.n_moves++;

			step->engine_job.moves[at] = batch->moves[move];
			step->move[at] = move;
		}
	return true;
}

static int take_wait(struct spread_step *step, const struct job *job, struct error *err)
{
	struct engine_job *own = &step->engine_job;
	int r = region_reach(job->wait, step->device, err);

	if (r < 0)
		return r;
	own->wait = job->engine_job.wait;
	own->wait.memory = region_memory(job->wait, step->device);
	own->wait_until_ns = job->engine_job.wait_until_ns;
	return 0;
}

/* Gives the step the job's share of the engine and, if it starts at once, the point that the job waits for.
 * The signal stays with the job. Returns 0, NO_MEMORY, or what region_reach does. */
static int take_order(struct spread_step *step, const struct job *job, struct error *err)
{
	const struct engine_job *whole = &job->engine_job;
	struct engine_job *own = &step->engine_job;
	int r = session_open_stream(job->session, step->device, err);

	if (r == 0 && step->after == SPREAD_AT_ONCE && whole->wait.memory)
		r = take_wait(step, job, err);
	own->share = whole->share;
	if (step->after != SPREAD_AT_ONCE) /* the deadline holds only for steps that start at once */
		own->share.begin_until_ns = 0;
	own->on_done = on_step_done;
	return r;
}

static int fill(struct spread *spread, const uint32_t *step_of, struct error *err)
{
	int r = 0;

	count_moves(spread, step_of);
	if (!take_moves(spread, step_of))
		return error_set(err, STATUS_NO_MEMORY, "no memory for a request on several devices");
	for (uint32_t s = 0; s < spread->n && (r == 0 || r == REACH_LATER); s++) {
		const int one = take_order(&spread->step[s], spread->job, err);

		r = one < 0 ? one : r;
	}
	return r;
}

/* Fills in the spread and sets *ret to it, or frees it on failure. Fails with NO_MEMORY if spread or step_of
 * is NULL. */
static int finish(struct spread *spread, const uint32_t *step_of, struct spread **ret, struct error *err)
{
	int r = spread && step_of
	            ? fill(spread, step_of, err)
	            : error_set(err, STATUS_NO_MEMORY, "no memory for a request on several devices");

	if (r < 0)
		spread_free(spread);
	else
		*ret = spread;
	return r;
}

/* Numbers the devices that the items run on in the order of the items, and sets step_of[i] to the number of
 * item i's device. Returns how many devices there are. */
static uint32_t number_devices(const struct batch *batch, uint32_t *step_of)
{
	uint32_t step[ENGINES_MOST], n = 0;

	for (uint32_t d = 0; d < ENGINES_MOST; d++)
		step[d] = NONE;
	for (uint32_t i = 0; i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];

		if (!item->n_moves)
			continue;
		if (step[item->device] == NONE)
			step[item->device] = n++;
		step_of[i] = step[item->device];
	}
	return n;
}

int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err)
{
	uint32_t *step_of = malloc(batch->n * sizeof *step_of);
	struct spread *spread = step_of ? allocate_spread(job, batch, number_devices(batch, step_of)) : NULL;
	int r = finish(spread, step_of, ret, err);

	free(step_of);
	return r;
}

int spread_new_tree(struct job *job, struct batch *batch, const uint32_t *after, struct spread **ret,
                    struct error *err)
{
	uint32_t *step_of = malloc(batch->n * sizeof *step_of);
	struct spread *spread = allocate_spread(job, batch, batch->n);
	/* With a deadline, all other steps come after the first: once the first step has begun, the request
	 * has. */
	const bool is_timed = job->engine_job.share.begin_until_ns > 0;
	int r;

	for (uint32_t i = batch->n; step_of && spread && i-- > 0;) {
		step_of[i] = i;
		const uint32_t before = is_timed && i > 0 && after[i] == SPREAD_AT_ONCE ? 0 : after[i];

		spread->step[i].after = before;
		if (before == SPREAD_AT_ONCE)
			continue;
		spread->step[i].next = spread->step[before].first;
		spread->step[before].first = i;
	}
	r = finish(spread, step_of, ret, err);
	free(step_of);
	return r;
}

void spread_free(struct spread *spread)
{
	if (!spread)
		return;
	free(spread->step[0].engine_job.moves);
	free(spread);
}

/* ---- Under way ----------------------------------------------------------------------------------------- */

static struct served_device *device_of(const struct spread *spread, uint32_t device)
{
	return &spread->job->session->service->devices.of[device];
}

static void submit(const struct spread *spread, uint32_t at, struct engine_job *engine_job)
{
	struct served_device *device = device_of(spread, at);

	device->jobs++;
	engine_submit(device->engine, spread->job->session->streams[at], engine_job);
}

static void start(struct spread *spread, struct spread_step *step)
{
	spread->under_way++;
	spread->left--;
	submit(spread, step->device, &step->engine_job);
}

void spread_submit(struct spread *spread)
{
	spread->on_done = spread->job->engine_job.on_done;
	spread->wait = spread->job->engine_job.wait.memory;
	spread->left = spread->n;
	for (uint32_t s = 0; s < spread->n; s++)
		if (spread->step[s].after == SPREAD_AT_ONCE)
			start(spread, &spread->step[s]);
}

static bool cancel_step(const struct spread *spread, struct spread_step *step)
{
	return engine_cancel(device_of(spread, step->device)->engine,
	                     spread->job->session->streams[step->device], &step->engine_job);
}

bool spread_cancel(struct spread *spread)
{
	struct spread_step *step = spread->step, *end = spread->step + spread->n;
	bool any = false;

	if (spread->under_way + spread->left < spread->n || spread->is_stopped)
		return false;
	while (step < end && (step->after != SPREAD_AT_ONCE || cancel_step(spread, step)))
		any |= (step++)->after == SPREAD_AT_ONCE;
	if (step == end) {
		spread->is_stopped = true;
		return true;
	}
	while (any && step-- > spread->step)
		step->is_withdrawn = step->after == SPREAD_AT_ONCE;
	return false;
}

void spread_stop(struct spread *spread)
{
	spread->is_stopped = true;
}

/* Ranks a status by how much of a job it is about: single elements, single moves, or the whole job. */
static int gravity(int status)
{
	switch (status) {
	case 0:
		return 0;
	case STATUS_OUT_OF_RANGE:
		return 1;
	case STATUS_DEVICE:
		return 2;
	default:
		return 3;
	}
}

static void take_outcome(struct spread *spread, const struct spread_step *step)
{
	const struct engine_job *own = &step->engine_job;
	struct engine_job *whole = &spread->job->engine_job;

	for (uint32_t i = 0; i < own->n_moves; i++)
		spread->batch->moves[step->move[i]] = own->moves[i];
	if (gravity(own->status) > gravity(whole->status))
		whole->status = own->status;
	/* If a device is lost, the users of jobs that had begun on it are suspected. */
	whole->begun |= own->begun && own->status;
	spread->ns += own->ns;
	spread->is_stopped |= gravity(own->status) > gravity(STATUS_OUT_OF_RANGE);
}

static void end(struct spread *spread)
{
	struct engine_job *whole = &spread->job->engine_job;

	if (spread->left > 0 && gravity(whole->status) <= gravity(STATUS_OUT_OF_RANGE))
		whole->status = STATUS_CANCELED;
	whole->ns = spread->ns;
	if (whole->status || !whole->signal.memory) {
		whole->on_done(whole);
		return;
	}
	whole->n_moves = 0;
	whole->wait.memory = NULL;
	whole->share.begin_until_ns = 0;
	whole->on_done = on_signalled;
	submit(spread, spread->job->device, whole);
}

static void give_again(struct spread *spread, struct spread_step *step)
{
	step->is_withdrawn = false;
	for (uint32_t i = 0; i < step->engine_job.n_moves; i++)
		step->engine_job.moves[i].status = 0;
	submit(spread, step->device, &step->engine_job);
}

static void on_step_done(struct engine_job *engine_job)
{
	struct spread_step *step = (struct spread_step *)engine_job;
	struct spread *spread = step->spread;

	device_of(spread, step->device)->jobs--;
	if (step->is_withdrawn && !spread->is_stopped) {
		give_again(spread, step);
		return;
	}
	take_outcome(spread, step);
	for (uint32_t s = step->first; s != NONE && !spread->is_stopped; s = spread->step[s].next)
		start(spread, &spread->step[s]);
	if (--spread->under_way == 0)
		end(spread);
}

static void on_signalled(struct engine_job *engine_job)
{
	struct job *job = (struct job *)engine_job; /* engine_job is its first member */
	struct spread *spread = job->spread;

	device_of(spread, job->device)->jobs--;
	engine_job->ns = spread->ns;
	engine_job->n_moves = spread->batch->n_moves;
	engine_job->wait.memory = spread->wait;
	engine_job->on_done = spread->on_done;
	engine_job->on_done(engine_job);
}
