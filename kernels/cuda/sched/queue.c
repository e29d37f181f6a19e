/* SPDX-License-Identifier: Apache-2.0 */
/* A job waits in its stream, then is in flight, and ends in the done list. The owner is woken only for the
 * first job in that list, because it reaps all of them at once. Jobs of a stream end in the order in which
 * they were submitted, even if they are cancelled. Admission checks the limits on what may be under way, the
 * cheapest check first. */
#include "queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/stage/jobs.h"
#include "kernels/host/fault.h"
#include "proto/clock.h"

#define NS_A_SECOND UINT64_C(1000000000)

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg)
{
	pthread_condattr_t attr;

	*queue = (struct queue){ .wake = wake, .wake_arg = wake_arg };
	job_list_init(&queue->done);
	fair_queue_init(&queue->fair_queue);
	TAILQ_INIT(&queue->waiting);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->work, &attr);
	pthread_condattr_destroy(&attr);
}

void queue_deinit(struct queue *queue)
{
	assert(TAILQ_EMPTY(&queue->fair_queue.owners) && TAILQ_EMPTY(&queue->waiting) && !queue->done.first);
	pthread_cond_destroy(&queue->work);
	pthread_mutex_destroy(&queue->lock);
}

struct engine_stream *queue_stream_new(struct queue *queue, struct engine_owner *owner)
{
	struct engine_stream *stream = calloc(1, sizeof *stream);

	if (!stream)
		return NULL;
	stream->queue = queue;
	stream->fair.owner = owner;
	job_list_init(&stream->unstarted);
	TAILQ_INIT(&stream->flights);
	owner->streams++;
	return stream;
}

void queue_stream_free(struct engine_stream *stream)
{
	assert(!stream->unstarted.first && stream->n_flights == 0 && stream->fair.owner->streams > 0);
	stream->fair.owner->streams--;
	free(stream);
}

/* ---- Waiting, and done -------------------------------------------------------------------------------- */

struct engine_job *queue_take(struct engine_stream *stream)
{
	stream->planned = false;
	stream->has_come = false;
	stream->since_ns = stream->poll_ns = 0;
	return job_list_take(&stream->unstarted);
}

/* Puts the stream in the list of those that wait for a point, or removes it. */
static void set_waiting(struct engine_stream *stream, bool waits)
{
	if (waits && !stream->is_waiting)
		TAILQ_INSERT_TAIL(&stream->queue->waiting, stream, waiting_entry);
	else if (!waits && stream->is_waiting)
		TAILQ_REMOVE(&stream->queue->waiting, stream, waiting_entry);
	stream->is_waiting = waits;
}

/* Puts the stream in the fair queue with the priority of its first job. */
static void enqueue(struct engine_stream *stream)
{
	struct fair_queue *fair_queue = &stream->queue->fair_queue;
	const enum job_priority priority = stream->unstarted.first->share.priority;

	if (stream->fair.queued && stream->fair.priority == priority)
		return;
	fair_queue_remove(fair_queue, &stream->fair);
	stream->fair.priority = priority;
	fair_queue_add(fair_queue, &stream->fair);
}

bool queue_settle(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	bool wake = false;

	if (stream->n_flights == 0 && !stream->is_polled)
		while (stream->unstarted.first && stream->unstarted.first->status)
			wake |= job_list_add(&queue->done, queue_take(stream));
	bool lives = stream->unstarted.first && !stream->unstarted.first->status;
	bool waits = lives && stream->unstarted.first->wait.memory && !stream->has_come;
	set_waiting(stream, waits);
	if (!lives || waits)
		fair_queue_remove(&queue->fair_queue, &stream->fair);
	else
		enqueue(stream);
	return wake;
}

static bool lose_stream(struct engine_stream *stream)
{
	job_list_end_all(&stream->unstarted, STATUS_DEVICE_LOST);
	return queue_settle(stream);
}

bool queue_lose_waiting(struct queue *queue)
{
	struct engine_stream *stream;
	bool wake = false;

	while ((stream = (struct engine_stream *)fair_queue_next(&queue->fair_queue)))
		wake |= lose_stream(stream);
	while ((stream = TAILQ_FIRST(&queue->waiting)))
		wake |= lose_stream(stream);
	return wake;
}

void queue_stir(struct queue *queue)
{
	queue->changed = true;
	pthread_cond_signal(&queue->work);
}

bool queue_wait(struct queue *queue, uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / NS_A_SECOND), (long)(until_ns % NS_A_SECOND) };
	int r = 0;

	while (queue->thread == QUEUE_DRIVEN || (!queue->changed && !queue->closing && r == 0))
		r = until_ns && queue->thread != QUEUE_DRIVEN
		        ? pthread_cond_timedwait(&queue->work, &queue->lock, &until)
		        : pthread_cond_wait(&queue->work, &queue->lock);
	return r == 0 || queue->changed;
}

void queue_unlock_and_wake(struct queue *queue, bool wake)
{
	pthread_mutex_unlock(&queue->lock);
	if (wake)
		queue->wake(queue->wake_arg);
}

/* ---- The owner ------------------------------------------------------------------------------------- */

void queue_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct queue *queue = stream->queue;
	bool wake;

	assert(job->moves || job->move.dst->writable);
	assert(!job->signal.memory || job->signal.memory->writable);
	job->ns = 0;
	job->begun = false;
	job->is_measured = false;
	if (job->blocks)
		job->blocks->passed = job->blocks->beyond = 0;
	pthread_mutex_lock(&queue->lock);
	job_end_all(job, queue->lost ? STATUS_DEVICE_LOST : 0);
	job_list_add(&stream->unstarted, job);
	wake = queue_settle(stream);
	queue->changed = true;
	if (!queue->drives || queue->thread == QUEUE_POLLED)
		pthread_cond_signal(&queue->work);
	queue_unlock_and_wake(queue, wake);
}

void queue_cancel(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	struct flight *flight;
	bool wake;

	pthread_mutex_lock(&queue->lock);
	job_list_end_all(&stream->unstarted, STATUS_CANCELED);
	TAILQ_FOREACH(flight, &stream->flights, stream_entry)
		flight_stop(flight);
	wake = queue_settle(stream);
	queue_stir(queue);
	queue_unlock_and_wake(queue, wake);
}

bool queue_cancel_job(struct engine_stream *stream, struct engine_job *job)
{
	struct queue *queue = stream->queue;
	bool wake = false, waits;

	pthread_mutex_lock(&queue->lock);
	waits = job_list_has(&stream->unstarted, job);
	if (waits && job->status == 0) {
		job_end_all(job, STATUS_CANCELED);
		wake = queue_settle(stream);
		queue_stir(queue);
	}
	queue_unlock_and_wake(queue, wake);
	return waits;
}

struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size)
{
	struct engine_job *done;

	pthread_mutex_lock(&queue->lock);
	done = job_list_take_all(&queue->done);
	if (queue->lost) {
		*lost = true;
		snprintf(why, size, "%s", queue->lost_why);
	}
	pthread_mutex_unlock(&queue->lock);
	return done;
}

/* ---- The end --------------------------------------------------------------------------------------- */

/* The owner is woken even if it has no job, so that it learns of the loss. */
void queue_lose(struct queue *queue, const char *why)
{
	pthread_mutex_lock(&queue->lock);
	bool first = !queue->lost;

	if (first)
		snprintf(queue->lost_why, sizeof queue->lost_why, "%s", why);
	queue->lost = true;
	queue_stir(queue);
	queue_unlock_and_wake(queue, first);
}

int queue_check(struct queue *queue, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&queue->lock);
	if (queue->lost)
		r = error_set(err, STATUS_DEVICE_LOST, "the device is lost; the service is restarting");
	pthread_mutex_unlock(&queue->lock);
	return r;
}

/* ---- Admission ----------------------------------------------------------------------------------------- */

#define SCRATCH_RETRY_NS UINT64_C(1000000000) /* pause after the device had no memory for scratch */

/* After PLAN_NS nanoseconds, no further plan is begun before the next pass. PLAN_PRICE is the time in
 * nanoseconds that the owner whose job needs a plan is charged for it. */
#define PLAN_NS    100000
#define PLAN_PRICE 50000

void admission_init(struct admission *admission, const struct cuda_limits *limits, bool by_mps)
{
	*admission = (struct admission){
		.limits = limits,
		.sharing = { .by_mps = by_mps, .slack_ns = limits->sharing_slack_ns },
	};
	scratch_init(&admission->scratch);
}

/* ---- What may be under way ---------------------------------------------------------------------------- */

static uint32_t half(uint32_t n)
{
	return n > 1 ? n / 2 : 1;
}

enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits)
{
	const uint64_t bytes = job_bytes(job);

	if (bytes > limits->short_host_bytes && job_is_by_bus(job))
		return JOB_BESIDE;
	if (bytes <= limits->short_bytes && job->share.priority == JOB_PRIORITY_BACKGROUND)
		return JOB_BESIDE;
	if (bytes <= limits->short_bytes)
		return JOB_SHORT;
	return job->share.priority == JOB_PRIORITY_URGENT ? JOB_URGENT : JOB_LONG;
}

/* Returns whether the owner may have this job under way in addition to its others. These limits leave room
 * for other owners' jobs and keep the waits of those short: on the device, short jobs pass long ones, but
 * long ones wait for each other. */
static bool owner_may_start(const struct admission *admission, const struct engine_owner *owner,
                            const struct engine_job *job)
{
	const struct cuda_limits *limits = admission->limits;

	if (owner->running == 0)
		return true;
	if (owner->running >= half(limits->jobs))
		return false;
	switch (job_weight(job, limits)) {
	case JOB_LONG:
		return owner->long_jobs < limits->long_jobs;
	case JOB_URGENT: /* one more than the long jobs that it passes */
		return owner->long_jobs + owner->urgent_jobs < limits->long_jobs + 1;
	default:
		return owner->running_bytes < limits->owner_bytes &&
		       job_bytes(job) <= limits->owner_bytes - owner->running_bytes;
	}
}

/* Returns whether the job counts against owner_bytes. Long jobs do not; their number is limited instead. */
static bool counts_bytes(enum job_weight weight)
{
	return weight != JOB_LONG && weight != JOB_URGENT;
}

void admission_start(struct admission *admission, struct flight *flight)
{
	struct engine_owner *owner = flight->owner;
	const struct staging *staging = &flight->staging;
	const bool is_staged = staging_is_needed(staging);

	owner->running++;
	if (counts_bytes(flight->weight))
		owner->running_bytes += job_bytes(flight->job);
	owner->staging += is_staged;
	admission->staged += is_staged;
	if (staging->scratch_bytes > 0)
		scratch_take(&admission->scratch, staging->scratch_bytes, &flight->scratch);
}

void admission_end(struct admission *admission, struct flight *flight)
{
	struct engine_owner *owner = flight->owner;
	const bool is_staged = staging_is_needed(&flight->staging);

	owner->running--;
	if (counts_bytes(flight->weight))
		owner->running_bytes -= job_bytes(flight->job);
	owner->staging -= is_staged;
	admission->staged -= is_staged;
	scratch_give(&admission->scratch, &flight->scratch);
}

/* ---- How a job travels -------------------------------------------------------------------------------- */

static enum staging_place place(struct engine_memory *memory)
{
	return cuda_memory(memory)->host ? STAGING_ON_HOST : STAGING_ON_DEVICE;
}

/* Returns whether scratch memory is not allocated and it is time to try to allocate it. */
static bool may_open_scratch(const struct admission *admission)
{
	return !admission->scratch.address && admission->limits->scratch_bytes > 0 &&
	       clock_ns() - admission->scratch_failed_ns > SCRATCH_RETRY_NS;
}

/* Returns whether host memory of the side's layers has the same addresses on the device as in this process,
 * so that the same offsets between layers serve both. */
static bool is_as_for_device(const struct engine_blocks_side *side)
{
	for (uint32_t l = 0; side->table && l < side->table->n; l++) {
		const struct cuda_memory *memory = cuda_memory(side->table->memories[l]);

		if (memory->host && memory->address != (uint64_t)(uintptr_t)memory->data)
			return false;
	}
	return true;
}

static bool init_packing(const struct admission *admission, const struct engine_job *job,
                         uint64_t scratch_bytes, struct packing *ret)
{
	const struct packing_places places = {
		.dst_is_host = place(job->move.dst) == STAGING_ON_HOST,
		.src_is_host = place(job->move.src) == STAGING_ON_HOST,
	};
	const uint64_t now = clock_ns();
	const struct packing_limits limits = {
		.least_bytes = admission->limits->pack_least_bytes,
		.run_bytes = admission->limits->pack_run_bytes,
		.piece_bytes = admission->limits->pack_piece_bytes,
		.slot_bytes = admission->limits->pack_slots > 0 ? admission->limits->pack_slot_bytes : 0,
		.stretch_bytes = admission->limits->pack_stretch_bytes,
		.scratch_bytes = scratch_bytes,
		.slots = PACKING_MOST_SLOTS,
		.has_threads = admission->limits->pack_alone || sharing_is_seen(&admission->sharing, now),
		.is_busy = sharing_is_felt(&admission->sharing, now),
	};

	return (places.dst_is_host || places.src_is_host) && !job->move.transform->conversion.is &&
	       is_as_for_device(&job->blocks->dst) && is_as_for_device(&job->blocks->src) &&
	       packing_init(ret, job, &places, &limits);
}

/* Adds a round for the signal of a job with an exact cast, so that the cast is judged before the job
 * signals. */
static void add_judgement(struct staging *staging, const struct engine_job *job)
{
	if (staging->rounds > 0 && job->signal.memory && job_is_exact(job))
		staging->rounds++;
}

/* Does what plan_first does, for a list of blocks. A packed list takes at most half of the scratch memory
 * that is left, so that there is always some left for other owners' jobs. */
static bool plan_list(struct admission *admission, struct engine_stream *stream)
{
	const bool may_open = may_open_scratch(admission);
	const uint64_t left =
	    may_open ? admission->limits->scratch_bytes : scratch_largest(&admission->scratch);
	const uint64_t bytes = left / 2;
	struct packing packing;

	/* The family stays FAMILY_FILL if no launch sets it. */
	stream->unstarted.first->blocks->family = FAMILY_FILL;
	if (!init_packing(admission, stream->unstarted.first, bytes, &packing)) {
		staging_init_direct(&stream->staging, job_bytes(stream->unstarted.first) > 0);
		add_judgement(&stream->staging, stream->unstarted.first);
	} else if (may_open && packing.scratch_bytes > 0) {
		admission->scratch_missing = true;
		return false;
	} else {
		staging_init_packed(&stream->staging, &packing);
	}
	return true;
}

static void want_plan(struct admission *admission, struct engine_plan *plan, struct engine_owner *owner)
{
	for (uint32_t i = 0; i < admission->n_wanted; i++)
		if (admission->wanted[i].plan == plan)
			return;
	if (admission->n_wanted == ADMISSION_PLANS)
		return;
	engine_plan_ref(plan);
	admission->wanted[admission->n_wanted++] = (struct wanted_plan){ plan, owner };
}

/* Returns whether the plans of all moves of the job have been made, and asks for those that have not. If too
 * many plans are wanted already, the job asks again in the next pass. */
static bool has_plans(struct admission *admission, struct engine_owner *owner, struct engine_job *job)
{
	bool has_all = true;

	for (uint32_t i = 0; i < job_moves(job); i++) {
		struct engine_move *move = job_move(job, i);
		const bool is_made = cuda_plan_is_made(move->plan);

		if (is_made)
			move->family = cuda_plan(move->plan)->family;
		if (!is_made || (!job->moves && trials_are_wanted(move->plan)))
			want_plan(admission, move->plan, owner);
		has_all &= is_made;
	}
	return has_all;
}

/* Decides how the stream's first job travels. Returns false if plans have to be made or scratch memory
 * allocated before that can be decided. */
static bool plan_first(struct admission *admission, struct engine_stream *stream)
{
	struct engine_job *job = stream->unstarted.first;
	const struct scratch *scratch = &admission->scratch;
	enum staging_place dst, src;
	struct staging_limits limits = {
		.direct_bytes = admission->limits->direct_bytes,
		.round_bytes = admission->limits->round_bytes,
		.row_bytes = sharing_is_seen(&admission->sharing, clock_ns())
		                 ? admission->limits->shared_row_bytes
		                 : admission->limits->row_bytes,
		.tile_bytes = admission->limits->tile_bytes,
		.tile_row_bytes = admission->limits->tile_row_bytes,
		.scratch_bytes = scratch->size,
	};

	if (stream->planned)
		return true;
	if (job->blocks)
		return stream->planned = plan_list(admission, stream);
	if (!has_plans(admission, stream->fair.owner, job))
		return false;
	if (job->moves || job->move.transform->conversion.is) {
		staging_init_direct(&stream->staging, job_bytes(job) > 0);
		add_judgement(&stream->staging, job);
		return stream->planned = true;
	}
	dst = place(job->move.dst);
	src = place(job->move.src);
	if ((dst == STAGING_ON_HOST || src == STAGING_ON_HOST) &&
	    job->move.transform->bytes > limits.direct_bytes && may_open_scratch(admission)) {
		admission->scratch_missing = true;
		return false;
	}
	staging_init(&stream->staging, job->move.transform, cuda_plan(job->move.plan), dst, src, &limits);
	stream->planned = true;
	return true;
}

static bool staged_may_start(struct admission *admission, const struct engine_stream *stream)
{
	uint64_t bytes = stream->staging.scratch_bytes;
	uint32_t most = admission->limits->staged_jobs;

	if (stream->n_flights > 0 || admission->staged >= most || stream->fair.owner->staging >= half(most) ||
	    (bytes > 0 && admission->scratch_full))
		return false;
	if (bytes == 0 || scratch_has(&admission->scratch, bytes))
		return true;
	admission->scratch_full = true;
	return false;
}

/* Makes a packed job be planned again if other jobs have taken the scratch memory that its plan needs. */
static void plan_smaller(struct admission *admission, struct engine_stream *stream)
{
	const struct staging *staging = &stream->staging;

	if (stream->planned && staging->is_packed && staging->scratch_bytes > 0 &&
	    !scratch_has(&admission->scratch, staging->scratch_bytes))
		stream->planned = false;
}

bool admission_can_start(struct fair_stream *fair, void *arg)
{
	struct engine_stream *stream = (struct engine_stream *)fair;
	struct admission *admission = arg;
	struct flight *last = TAILQ_LAST(&stream->flights, flight_list);

	if (job_is_late(stream->unstarted.first))
		return true; /* start_jobs ends it, and no plan is made for it. */
	if (stream->n_flights >= admission->limits->stream_jobs ||
	    (last && staging_is_needed(&last->staging)) ||
	    !owner_may_start(admission, fair->owner, stream->unstarted.first))
		return false;
	plan_smaller(admission, stream);
	if (!plan_first(admission, stream))
		return false;
	return !staging_is_needed(&stream->staging) || staged_may_start(admission, stream);
}

/* Lists and batches need an upload buffer. It is allocated for the first of them, which the owner's thread
 * must not do. */
bool admission_is_quick(const struct admission *admission, const struct fair_stream *fair,
                        const struct flight *next)
{
	const struct engine_stream *stream = (const struct engine_stream *)fair;
	const struct engine_job *job = stream->unstarted.first;
	const struct engine_blocks *blocks = job->blocks;
	const uint64_t moves = blocks ? blocks->n * blocks->layers : job->moves ? job->n_moves : 0;

	if (job->next || job_is_exact(job) || (job->wait.memory && !cuda_memory(job->wait.memory)->host) ||
	    (job->signal.memory && timeline_wakes_are_slow(fair->owner, clock_ns())))
		return false;
	if (!job_is_many(job) && move_is_by_bus(&job->move))
		return job->move.transform->bytes <= admission->limits->direct_bytes;
	if (job->blocks && move_is_by_bus(&job->move) &&
	    job_bytes(job) >= admission->limits->pack_least_bytes)
		return false;
	return moves == 0 || (moves <= admission->limits->quick_moves && next && next->upload_buffer.host);
}

/* ---- What is missing ---------------------------------------------------------------------------------- */

void admission_open_scratch(struct admission *admission, struct queue *queue)
{
	struct error err;
	int r;

	pthread_mutex_unlock(&queue->lock);
	r = scratch_open(&admission->scratch, admission->limits->scratch_bytes, &err);
	admission->scratch_failed_ns = r < 0 ? clock_ns() : 0;
	if (r == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	admission->scratch_missing = false;
}

void admission_charge_plans(struct admission *admission, struct queue *queue)
{
	for (uint32_t i = 0; i < admission->n_wanted; i++) {
		struct wanted_plan *wanted = &admission->wanted[i];

		if (wanted->owner)
			fair_queue_charge(&queue->fair_queue, wanted->owner, PLAN_PRICE);
		wanted->owner = NULL;
	}
}

void admission_drop_plans(struct admission *admission, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		engine_plan_unref(admission->wanted[i].plan);
	admission->n_wanted -= n;
	memmove(admission->wanted, admission->wanted + n, admission->n_wanted * sizeof *admission->wanted);
}

/* Makes a plan. If it has been made already, it is wanted because alternatives to it are to be tried. */
static void make_plan(struct engine_plan *plan, struct queue *queue)
{
	struct plan_trials *made;

	if (!cuda_plan_is_made(plan)) {
		cuda_plan(plan);
		return;
	}
	made = trials_make(plan);
	pthread_mutex_lock(&queue->lock);
	trials_start(plan, made);
	pthread_mutex_unlock(&queue->lock);
}

void admission_make_plans(struct admission *admission, struct queue *queue)
{
	const uint64_t start_ns = clock_ns();
	uint32_t n = 0;

	pthread_mutex_unlock(&queue->lock);
	while (n < admission->n_wanted && clock_ns() - start_ns < PLAN_NS)
		make_plan(admission->wanted[n++].plan, queue);
	admission_drop_plans(admission, n);
	pthread_mutex_lock(&queue->lock);
}
