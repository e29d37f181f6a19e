/* SPDX-License-Identifier: Apache-2.0 */
/* Runs flights (flight.h): launches and polls a flight's rounds, or its packed list, and ends the flight.
 * Also polls the points of timelines that jobs wait for. */
#include "flight.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/stage/round.h"
#include "kernels/host/backing.h"
#include "kernels/host/fault.h"
#include "kernels/queue/fair_queue.h"
#include "proto/clock.h"
#include "queue.h"

static_assert(FLIGHT_MOST_ENDS >= STAGING_MOST_SLOTS, "each round under way has an end");

int flight_init(struct flight *flight, struct equipment *equipment, const struct cuda_limits *limits,
                struct error *err)
{
	int r = driver_call(err, cuEventCreate, (&flight->start, CU_EVENT_DEFAULT));
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&flight->done, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < FLIGHT_MOST_ENDS && r == 0; i++)
		r = driver_call(err, cuEventCreate, (&flight->end[i], CU_EVENT_DEFAULT));
	flight->pack.equipment = equipment;
	flight->pack.fate = &flight->fate;
	flight->pack.slack_ns = limits->sharing_slack_ns;
	flight->pack.moved = flight->end;
	return r;
}

void flight_deinit(struct flight *flight, enum cuda_health health)
{
	pack_job_deinit(&flight->pack);
	if (health == CUDA_LOST)
		return;
	upload_buffer_close(&flight->upload_buffer);
	for (int i = 0; i < FLIGHT_MOST_ENDS; i++)
		if (flight->end[i])
			driver.cuEventDestroy(flight->end[i]);
	if (flight->done)
		driver.cuEventDestroy(flight->done);
	if (flight->start)
		driver.cuEventDestroy(flight->start);
}

void flight_start(struct flight *flight, struct engine_job *job, const struct staging *staging,
                  struct quick *quick)
{
	flight->job = job;
	flight->staging = *staging;
	flight->stage = FLIGHT_NEW;
	flight->fate.status = 0;
	atomic_store_explicit(&flight->fate.stopped, false, memory_order_relaxed);
	flight->upload_buffer.magnitudes = 0;
	flight->upload_buffer.changed = NULL;
	flight->brought = (struct tensor_extent){ 0, 0 };
	flight->is_signal_alone = staging->rounds == 0 && job->signal.memory;
	if (flight->is_signal_alone)
		flight->staging.rounds = flight->staging.slots = 1;
	flight->has_changed = false;
	flight->launched = flight->landed = 0;
	flight->wakes_left = 0;
	flight->waking_ns = 0;
	flight->is_timed = !quick || quick_is_timed(quick);
	flight->started_ns = clock_ns();
	flight->done_ns = 0;
	flight->has_followed = false;
	flight->predecessor = flight->successor = NULL;
	flight->quick = quick;
	flight->after = NULL;
}

bool flight_is_launched(const struct flight *flight)
{
	return flight->launched > flight->landed;
}

static uint64_t last_slot(const struct flight *flight)
{
	return (flight->launched - 1) % flight->staging.slots;
}

CUevent flight_end(const struct flight *flight)
{
	return flight->is_timed ? flight->end[last_slot(flight)] : flight->done;
}

void flight_stop(struct flight *flight)
{
	atomic_store_explicit(&flight->fate.stopped, true, memory_order_relaxed);
}

static bool has_more(const struct flight *flight)
{
	return flight->launched < flight->staging.rounds && !flight->has_changed &&
	       fate_is_open(&flight->fate);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

/* Makes the device write the signal behind everything that is on the stream. */
static int put_signal(const struct engine_point *signal, CUstream stream, struct error *err)
{
	const uint64_t address = cuda_memory(signal->memory)->address + signal->offset;

	return driver_call(err, cuStreamWriteValue64,
	                   (stream, address, signal->value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* Ends a job whose memory is known to have failed, so that it signals nothing. Moves of a batch are judged
 * one by one, at the end. */
static void check_memory(struct flight *flight)
{
	struct engine_job *job = flight->job;

	if (job->moves || job->status != 0)
		return;
	backing_check(job);
	flight->fate.status = job->status;
}

/* Begins to measure the job's time. first is the stream that the round uses first. A job that waits for an
 * event of another stream has one round, on one stream (queue.c). The time of a job that directly follows
 * another on its stream begins with that other job's end event: the device has one event less to record, and
 * no time is left uncounted between the two. */
static int begin_time(struct flight *flight, CUstream first, struct error *err)
{
	struct flight *last = flight->slot->last;
	int r = 0;

	flight->slot->last = NULL;
	if (flight->launched > 0)
		return 0;
	if (last && flight->is_timed && !flight->after && first == flight->slot->stream) {
		flight->predecessor = last;
		flight->has_followed = true;
		last->successor = flight;
		return 0;
	}
	if (flight->after)
		r = driver_call(err, cuStreamWaitEvent, (first, flight->after, CU_EVENT_WAIT_DEFAULT));
	return r < 0 || !flight->is_timed ? r : driver_call(err, cuEventRecord, (flight->start, first));
}

/* Records, on the stream that the round used last, the events that are polled or that measure its time. */
static int mark_end(struct flight *flight, CUstream last)
{
	CUevent end = flight->end[flight->launched % flight->staging.slots];
	int r = 0;

	if (flight->quick)
		r = driver_call(&flight->fate.why, cuEventRecord, (flight->done, last));
	if (r == 0 && flight->is_timed)
		r = driver_call(&flight->fate.why, cuEventRecord, (end, last));
	return r;
}

/* Returns whether the next round is the signal alone. With exact casts, the signal is a round of its own
 * after the one that moves (uploads.h). */
static bool is_signal(const struct flight *flight)
{
	return flight->is_signal_alone || (flight->upload_buffer.changed && flight->launched > 0);
}

static int put_round(struct flight *flight, struct round *round)
{
	const struct staging *s = &flight->staging;
	const struct engine_job *job = flight->job;
	struct error *err = &flight->fate.why;
	int r = begin_time(flight, s->src == STAGING_DIRECT ? round->own : round->in, err);

	if (r == 0)
		r = is_signal(flight) ? round_pass(round, round->own, err) : round_carry(round, err);
	if (r == 0 && job->signal.memory && flight->launched + 1 == s->rounds && !job_first_failure(job))
		r = put_signal(&job->signal, round->last, err);
	return r;
}

/* Launches the next round. The signal is behind all of the last round, and so behind all rounds, because they
 * end on the same stream.
 *
 * A round counts as launched as soon as part of it is on the device, because its end has to be awaited then.
 * If not even an event can be recorded, nothing would tell of that end, so the device is treated as lost.
 */
static int launch_round(struct equipment *equipment, struct flight *flight)
{
	const struct staging *s = &flight->staging;
	const bool alone = s->rounds == 1 || !s->scratch_bytes;
	CUstream own = flight->slot->stream;
	struct round round = {
		.equipment = equipment,
		.job = flight->job,
		.staging = s,
		.upload_buffer = &flight->upload_buffer,
		.brought = &flight->brought,
		.scratch = flight->scratch.start,
		.i = flight->launched,
		.in = alone ? own : equipment->copy_in,
		.own = own,
		.out = alone ? own : equipment->copy_out,
	};
	int r;

	round_init(&round);
	r = put_round(flight, &round);
	if (!round.last)
		return r;
	if (mark_end(flight, round.last) < 0)
		return STATUS_DEVICE_LOST;
	flight->launched++;
	if (s->rounds == 1 && flight->is_timed && round.last == own)
		flight->slot->last = flight;
	return r;
}

static void begin(struct flight *flight)
{
	struct pack_job *pack = &flight->pack;
	const struct staging *s = &flight->staging;

	check_memory(flight);
	flight->stage =
	    s->is_packed && has_more(flight) &&
		    pack_job_begin(pack, flight->job, &s->packing, flight->slot, flight->scratch.start)
		? FLIGHT_PACKED
		: FLIGHT_ROUNDS;
}

void flight_launch(struct equipment *equipment, struct flight *flight)
{
	if (flight->stage == FLIGHT_NEW)
		begin(flight);
	if (flight->stage != FLIGHT_ROUNDS)
		return;
	while (has_more(flight) && flight->launched - flight->landed < flight->staging.slots) {
		int r = launch_round(equipment, flight);

		if (r < 0)
			flight->fate.status = r;
	}
}

/* ---- Polling ------------------------------------------------------------------------------------------ */

/* Enqueues the signal behind everything that was moved. It counts as the last of the job's rounds. */
static void signal_moved(struct flight *flight)
{
	const struct engine_job *job = flight->job;
	CUstream own = flight->slot->stream;
	struct error *err = &flight->fate.why;
	int r = 0;

	if (!job->signal.memory) {
		flight->launched = flight->landed = flight->staging.rounds;
		return;
	}
	r = put_signal(&job->signal, own, err);
	if (driver_call(err, cuEventRecord, (flight->end[0], own)) < 0)
		r = STATUS_DEVICE_LOST;
	flight->slot->last = NULL;
	flight->launched = flight->staging.rounds;
	flight->fate.status = r;
}

/* Advances a packed job. Returns whether anything has changed. The stage changes once nothing of the job is
 * under way, or if the list is not to travel packed after all. */
static bool poll_packed(struct flight *flight)
{
	const bool moved = pack_job_poll(&flight->pack);

	if (flight->fate.status == STATUS_DEVICE_LOST || !pack_job_is_over(&flight->pack))
		return moved;
	if (flight->pack.stage == PACK_REFUSED) {
		pack_job_end(&flight->pack);
		flight->stage = FLIGHT_ROUNDS;
		return true;
	}
	if (pack_job_is_moved(&flight->pack) && flight->fate.status == 0)
		signal_moved(flight);
	flight->stage = FLIGHT_SIGNALLED;
	return moved;
}

/* Queries the first round that has not been seen to end. Returns 1 if it has ended (or, for a quick job, if
 * its event `done` was reached), 0 if not, or DEVICE_LOST, which then is the job's status. */
static int poll_round(struct flight *flight)
{
	const bool is_marked = flight->quick && !flight->done_ns;
	CUevent end = flight->end[flight->landed % flight->staging.slots];
	const int r = driver_query(is_marked ? flight->done : end, &flight->fate.why);

	if (r < 0)
		flight->fate.status = r;
	if (r <= 0)
		return r;
	if (is_marked)
		flight->done_ns = clock_ns();
	flight->landed += !is_marked || !flight->is_timed;
	return 1;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* Sets the job's time: by the host's clock if threads took part in it or if the device did not time it. */
static int measure(struct flight *flight)
{
	struct flight *predecessor = flight->predecessor;
	struct engine_job *job = flight->job;
	CUevent start = predecessor ? predecessor->end[last_slot(predecessor)] : flight->start;
	const uint64_t done_ns = flight->done_ns - flight->started_ns;
	float ms;

	if (flight->stage == FLIGHT_SIGNALLED) {
		job->ns = clock_ns() - flight->started_ns;
		return 0;
	}
	if (!flight->is_timed) {
		job->ns = quick_ns(flight->quick, done_ns);
		return 0;
	}
	int r =
	    driver_call(&flight->fate.why, cuEventElapsedTime, (&ms, start, flight->end[last_slot(flight)]));

	if (r == 0)
		job->ns = (uint64_t)((double)ms * 1e6);
	if (r == 0 && flight->quick)
		quick_learn(flight->quick, done_ns, job->ns);
	return r;
}

/* Detaches the flight from its neighbours, so that its events may be recorded again. A successor takes over
 * this flight's end event, with which its time begins, and gives its own start event in exchange. */
static void part(struct flight *flight)
{
	struct flight *successor = flight->successor;

	if (flight->slot->last == flight)
		flight->slot->last = NULL;
	if (flight->predecessor)
		flight->predecessor->successor = NULL;
	if (successor) {
		CUevent start = flight->end[last_slot(flight)];

		flight->end[last_slot(flight)] = successor->start;
		successor->start = start;
		successor->predecessor = NULL;
	}
	flight->predecessor = flight->successor = NULL;
}

/* Returns the status that the client is told. A driver error says nothing about the client's request, so it
 * becomes DEVICE. */
static int job_status(int status)
{
	switch (status) {
	case 0:
	case STATUS_CANCELED:
	case STATUS_DEVICE_LOST:
	case STATUS_NO_MEMORY:
	case STATUS_OUT_OF_RANGE:
		return status;
	default:
		return STATUS_DEVICE;
	}
}

/* Returns the status of a job that has not failed as a whole. */
static int land(struct flight *flight)
{
	struct engine_job *job = flight->job;
	int status = 0;

	if (flight->stage == FLIGHT_ROUNDS && flight->landed > 0 && !flight->is_signal_alone &&
	    job_is_many(job))
		status = many_land(&flight->upload_buffer, job);
	if (flight->upload_buffer.changed && flight->landed > 0)
		status = upload_buffer_judge(&flight->upload_buffer, job);
	return job_status(status);
}

void flight_abandon(struct flight *flight)
{
	if (flight->stage == FLIGHT_PACKED || flight->stage == FLIGHT_SIGNALLED)
		pack_job_end(&flight->pack);
	flight->stage = FLIGHT_WAKING;
}

/* Returns the signal's point in host memory, where threads may sleep on it; its memory is NULL if the point
 * lies on the device. */
static struct engine_point on_host(const struct engine_point *signal)
{
	return (struct engine_point){ .memory = cuda_memory(signal->memory)->host, .offset = signal->offset };
}

static void end(struct flight *flight)
{
	struct engine_job *job = flight->job;

	if (flight->fate.status == 0 && flight->launched < flight->staging.rounds && !flight->has_changed)
		flight->fate.status = STATUS_CANCELED;
	if (flight->fate.status)
		job_end_all(job, job_status(flight->fate.status));
	else
		job->status = land(flight);
	backing_check(job);
	flight_abandon(flight);
	if (job->status == 0 && job->signal.memory) {
		const struct engine_point signal = on_host(&job->signal);

		flight->wakes_left = signal.memory ? timeline_wakes(&signal) : 0;
	}
}

/* Wakes only a few sleeping threads per call, because the engine's thread polls all flights in turn. Returns
 * FLIGHT_ENDED once no more have to be woken, otherwise FLIGHT_MOVED. */
static enum flight_progress wake_some(struct flight *flight)
{
	const uint64_t start_ns = clock_ns();
	struct engine_point signal;
	uint64_t end_ns;
	uint32_t woken;

	if (flight->wakes_left == 0)
		return FLIGHT_ENDED;
	signal = on_host(&flight->job->signal);
	woken = timeline_wake(&signal, TIMELINE_WAKE_FIRST);
	flight->wakes_left -= woken < TIMELINE_WAKE_FIRST ? flight->wakes_left : woken;
	end_ns = clock_ns();
	timeline_note_wake(flight->owner, start_ns, end_ns);
	flight->waking_ns += end_ns - start_ns;
	return flight->wakes_left == 0 ? FLIGHT_ENDED : FLIGHT_MOVED;
}

static enum flight_progress progress(bool moved)
{
	return moved ? FLIGHT_MOVED : FLIGHT_STANDS;
}

enum flight_progress flight_poll(struct flight *flight)
{
	bool moved = false;
	int r = 1;

	if (flight->stage == FLIGHT_WAKING)
		return wake_some(flight);
	if (flight->stage == FLIGHT_PACKED)
		moved = poll_packed(flight);
	if (flight->stage == FLIGHT_PACKED)
		return progress(moved);
	while (flight->landed < flight->launched && r > 0) {
		r = poll_round(flight);
		moved |= r > 0;
	}
	if (r == 0)
		return progress(moved);
	if (flight->upload_buffer.changed && flight->landed == flight->launched && flight->landed > 0)
		flight->has_changed =
		    upload_buffer_judge(&flight->upload_buffer, flight->job) == STATUS_OUT_OF_RANGE;
	if (has_more(flight))
		return progress(moved);
	if (flight->landed > 0 && flight->fate.status == 0)
		flight->fate.status = measure(flight);
	part(flight);
	end(flight);
	return wake_some(flight);
}

/* ---- Timelines ----------------------------------------------------------------------------------------- */

/* A poll has three steps: the points that jobs wait for are gathered under the lock, read without it, and
 * applied under it. */

#define PAGE_BYTES 4096

/* After a poll, the next one begins at the earliest after this many times the length of that poll. Polls thus
 * take at most a fifth of the thread's time, and jobs that wait hardly slow down the others. */
#define REST_PER_POLL 4

/* A word is polled again after 1/POLL_SHARE of the time that it has been waited for, but not sooner than
 * after LEAST_NS: 256 polls in the first 1.3 ms, and then 177 each time that the wait doubles. */
#define POLL_SHARE 256
#define LEAST_NS   5000

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err)
{
	int r = fault_init();

	*timelines = (struct timelines){ .is_guarded = r == 0, .most_ns = most_ns, .due_ns = UINT64_MAX };
	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	return 0;
}

/* On a lost device the words stay allocated, because the device may still write to them. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health)
{
	if (timelines->is_guarded)
		fault_deinit();
	if (health == CUDA_LOST)
		return;
	driver_unpin(timelines->words, PAGE_BYTES);
	if (timelines->read)
		driver.cuEventDestroy(timelines->read);
	if (timelines->stream)
		driver.cuStreamDestroy(timelines->stream);
}

/* Creates what is missing. If something fails, the rest is kept, and the next poll tries again. */
static int open_device(struct timelines *timelines, struct error *err)
{
	int r = timelines->stream ? 0 : driver_stream(&timelines->stream, STREAM_HIGHEST, err);

	if (r == 0 && !timelines->read)
		r = driver_call(err, cuEventCreate, (&timelines->read, CU_EVENT_DISABLE_TIMING));
	if (r == 0 && !timelines->words) {
		void *words = NULL;

		r = driver_pin(&words, PAGE_BYTES, MADV_NORMAL, CU_MEMHOSTREGISTER_PORTABLE, err);
		timelines->words = words;
	}
	return r;
}

/* ---- Gathering: under the lock ------------------------------------------------------------------------ */

/* Gathers the points that are due, up to TIMELINE_WORDS of them, beginning with those whose last poll is the
 * longest ago. Their streams move to the end of the list. */
static void gather(struct timelines *timelines, struct queue *queue, uint64_t now)
{
	struct engine_stream *stream, *next;
	uint64_t due = UINT64_MAX;

	if (now < timelines->earliest_ns)
		return;
	for (stream = TAILQ_FIRST(&queue->waiting); stream && timelines->n < TIMELINE_WORDS; stream = next) {
		next = TAILQ_NEXT(stream, waiting_entry);
		if (stream->since_ns == 0)
			stream->since_ns = now;
		if (stream->poll_ns > now) {
			due = stream->poll_ns < due ? stream->poll_ns : due;
			continue;
		}
		stream->is_polled = true;
		timelines->polls[timelines->n++] = (struct poll){ .stream = stream };
	}
	for (uint32_t i = 0; i < timelines->n; i++) {
		TAILQ_REMOVE(&queue->waiting, timelines->polls[i].stream, waiting_entry);
		TAILQ_INSERT_TAIL(&queue->waiting, timelines->polls[i].stream, waiting_entry);
	}
	timelines->due_ns = stream ? now : due;
}

/* ---- Reading: without the lock ------------------------------------------------------------------------ */

static int read_on_host(const struct engine_point *point, struct engine_memory *host)
{
	struct engine_point on_host = { .memory = host, .offset = point->offset, .value = point->value };
	uint32_t low;

	return timeline_read(&on_host, &low);
}

static int ask_device(struct timelines *timelines, uint32_t i, const struct engine_point *point,
                      struct error *err)
{
	int r = open_device(timelines, err);

	if (r == 0)
		r = driver_call(err, cuMemcpyDtoHAsync,
		                (&timelines->words[i], cuda_memory(point->memory)->address + point->offset,
		                 sizeof *timelines->words, timelines->stream));
	return r;
}

/* Starts the poll: reads the words in host memory and enqueues copies of those on the device. If the end of
 * the copies cannot be observed, the device is treated as lost, because the memory of a word could be freed
 * under its copy. */
static int ask(struct timelines *timelines, struct error *err)
{
	bool any = false;

	for (uint32_t i = 0; i < timelines->n; i++) {
		struct poll *poll = &timelines->polls[i];
		const struct engine_point *point = &poll->stream->unstarted.first->wait;
		struct engine_memory *host = cuda_memory(point->memory)->host;

		if (host) {
			poll->result = read_on_host(point, host);
			continue;
		}
		int r = ask_device(timelines, i, point, err);
		if (r == STATUS_DEVICE_LOST)
			return r;
		poll->is_read_by_device = r == 0;
		poll->result = r < 0 ? job_status(r) : 0;
		any |= poll->is_read_by_device;
	}
	timelines->is_on_device = any;
	if (any && driver_call(err, cuEventRecord, (timelines->read, timelines->stream)) < 0)
		return STATUS_DEVICE_LOST;
	return 0;
}

/* Returns 1 if the poll has ended, 0 if it has not, or DEVICE_LOST. */
static int answer(struct timelines *timelines, struct error *err)
{
	const int r = timelines->is_on_device ? driver_query(timelines->read, err) : 1;

	if (r <= 0)
		return r;
	for (uint32_t i = 0; i < timelines->n; i++) {
		struct poll *poll = &timelines->polls[i];

		if (poll->is_read_by_device)
			poll->result =
			    (int64_t)(timelines->words[i] - poll->stream->unstarted.first->wait.value) >= 0;
	}
	return 1;
}

/* ---- Applying: under the lock ------------------------------------------------------------------------- */

uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns)
{
	const uint64_t pause = waited_ns / POLL_SHARE;

	return pause < LEAST_NS ? LEAST_NS : pause < most_ns ? pause : most_ns;
}

static bool apply_one(struct timelines *timelines, const struct poll *poll, uint64_t now)
{
	struct engine_stream *stream = poll->stream;
	struct engine_job *job = stream->unstarted.first;

	stream->is_polled = false;
	stream->poll_ns = now + timelines_pause_ns(now - stream->since_ns, timelines->most_ns);
	if (job->status == 0 && poll->result == 1)
		stream->has_come = true;
	else if (job->status == 0 && poll->result < 0)
		job_end_all(job, poll->result);
	else if (job->status == 0 && timelines->started_ns >= job_waits_until(job))
		job_end_all(job, STATUS_TIMEOUT);
	else if (stream->poll_ns < timelines->due_ns)
		timelines->due_ns = stream->poll_ns;
	return queue_settle(stream);
}

static bool apply(struct timelines *timelines)
{
	uint64_t now = clock_ns();
	bool wake = false;

	for (uint32_t i = 0; i < timelines->n; i++)
		wake |= apply_one(timelines, &timelines->polls[i], now);
	timelines->n = 0;
	return wake;
}

bool timelines_poll(struct timelines *timelines, struct queue *queue)
{
	uint64_t now = clock_ns();
	bool is_new = timelines->n == 0;
	struct error err;
	int r = 0;

	if (is_new)
		gather(timelines, queue, now);
	if (timelines->n == 0)
		return false;
	pthread_mutex_unlock(&queue->lock);
	if (is_new) {
		timelines->started_ns = now;
		r = ask(timelines, &err);
		now = clock_ns();
		timelines->earliest_ns = now + REST_PER_POLL * (now - timelines->started_ns);
	}
	if (r == 0)
		r = answer(timelines, &err);
	if (r < 0)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	return r > 0 && apply(timelines);
}

uint64_t timelines_due_ns(const struct timelines *timelines)
{
	if (timelines->n > 0)
		return 0;
	return timelines->due_ns > timelines->earliest_ns ? timelines->due_ns : timelines->earliest_ns;
}

bool timelines_lose(struct timelines *timelines)
{
	bool wake = false;

	for (uint32_t i = 0; i < timelines->n; i++) {
		timelines->polls[i].stream->is_polled = false;
		wake |= queue_settle(timelines->polls[i].stream);
	}
	timelines->n = 0;
	return wake;
}
