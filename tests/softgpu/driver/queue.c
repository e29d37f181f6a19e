/* SPDX-License-Identifier: Apache-2.0 */
/* The devices' units: threads that run the operations of all streams.
 *
 * Each device has its own units. One runs kernels and what needs no bus, the two others copy to the device
 * and from it. A unit runs one operation at a time, concurrently with the other units. Operations without
 * work (UNIT_NONE: marks and words) are done by whichever unit is idle. An operation stays first in its
 * stream while it runs.
 *
 * A stream can go on once the mark that its first operation waits for is reached, and as the legacy stream's
 * rule allows: that stream and the blocking ones of its context take turns in submission order. Of the
 * kernels that can start, those of the highest priority come first, and SOFTGPU_SEED decides among them. Only
 * events order streams of different devices.
 *
 * When an error sticks to a device, its remaining operations are dropped and their marks are never reached;
 * another device that waits for such a mark waits forever.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "call.h"
#include "softgpu.h"

#define LOOK_AGAIN_US 20

struct streams streams = TAILQ_HEAD_INITIALIZER(streams);

struct worker {
	pthread_t thread;
	pthread_cond_t wake;
	int device;
	enum unit unit;
	bool sleeps; /* idle until queue_wake */
	bool looks;  /* idle, but looks again after LOOK_AGAIN_US */
};

static struct {
	struct worker units[UNITS];
	unsigned started; /* number of units that have started */
	bool is_stopping;
} devices[MOST_DEVICES];

static const char *const unit_names[UNITS] = {
	[UNIT_KERNELS] = "kernels", [UNIT_TO_DEVICE] = "to_device", [UNIT_TO_HOST] = "to_host"
};

/* Aligned for clang's leak checker; context.c explains why. */
static _Thread_local _Alignas(64) bool is_unit;

static void *unit_main(void *arg);
static void throw_away(int device);

static int device_of(const struct stream *stream)
{
	return stream->context->ordinal;
}

/* ---- The units --------------------------------------------------------------------------------------- */

static void unit_wake(struct worker *worker)
{
	if (worker->sleeps)
		pthread_cond_signal(&worker->wake);
	worker->sleeps = false;
}

bool queue_is_unit(void)
{
	return is_unit;
}

void queue_wake(void)
{
	for (int i = 0; i < MOST_DEVICES; i++)
		for (int unit = 0; unit < UNITS; unit++)
			unit_wake(&devices[i].units[unit]);
}

/* Blocks all signals but SIGBUS in the thread. A GPU still reaches pinned pages after their file was
 * truncated; here such an access raises SIGBUS, and the handler of the driver's caller then maps other pages
 * there. */
static bool unit_start(int device, enum unit unit)
{
	struct worker *worker = &devices[device].units[unit];
	sigset_t all, old;
	int r;
	worker->device = device;
	worker->unit = unit;
	pthread_cond_init(&worker->wake, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_create(&worker->thread, NULL, unit_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r == 0;
}

CUresult queue_start(int device)
{
	if (devices[device].started > 0)
		return CUDA_SUCCESS;
	for (int unit = 0; unit < UNITS && unit_start(device, (enum unit)unit); unit++)
		devices[device].started++;
	if (devices[device].started == UNITS)
		return CUDA_SUCCESS;
	queue_stop(device);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void queue_stop(int device)
{
	if (devices[device].started == 0)
		return;
	devices[device].is_stopping = true;
	queue_wake();
	call_wake();
	call_unlock();
	for (unsigned unit = 0; unit < devices[device].started; unit++)
		pthread_join(devices[device].units[unit].thread, NULL);
	call_lock();
	throw_away(device);
	devices[device].started = 0;
	devices[device].is_stopping = false;
}

/* Returns whether op has to wait for an operation of another stream to end. */
static bool is_behind(const struct stream *stream, const struct op *op)
{
	const struct stream *other;
	if (!stream->is_blocking)
		return false;
	TAILQ_FOREACH(other, &streams, entry) {
		const struct op *first = STAILQ_FIRST(&other->ops);
		if (other->context == stream->context && other->is_blocking &&
		    other->is_legacy != stream->is_legacy && first && first->number < op->number)
			return true;
	}
	return false;
}

/* Returns whether a running kernel keeps everything else on the device from starting. */
static bool is_held_up(int device)
{
	const struct stream *stream;
	if (!call_is_stuck_by_kernels())
		return false;
	TAILQ_FOREACH(stream, &streams, entry)
		if (device_of(stream) == device && stream->is_running &&
		    STAILQ_FIRST(&stream->ops)->unit == UNIT_KERNELS)
			return true;
	return false;
}

static bool is_ready(const struct stream *stream)
{
	const struct op *op = STAILQ_FIRST(&stream->ops);
	return op && !is_held_up(device_of(stream)) && !stream->is_running &&
	       (!op->after || op->after->reached) && !is_behind(stream, op) &&
	       (!op->is_due || op->is_due(op));
}

/* Returns whether an operation waits for something that nobody signals, such as a word in memory. */
static bool has_to_look_again(int device)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (device_of(stream) == device && !STAILQ_EMPTY(&stream->ops) &&
		    STAILQ_FIRST(&stream->ops)->is_due)
			return true;
	return false;
}

/* Wakes the units that have something to do, and those that have to poll. */
void queue_wake_ready(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (is_ready(stream))
			unit_wake(&devices[device_of(stream)].units[STAILQ_FIRST(&stream->ops)->unit]);
	for (int i = 0; i < MOST_DEVICES; i++)
		if (!devices[i].units[UNIT_NONE].looks && has_to_look_again(i))
			unit_wake(&devices[i].units[UNIT_NONE]);
}

/* Returns the best priority among the operations that the unit can start now. */
static int best_priority(const struct worker *worker)
{
	const struct stream *stream;
	int best = INT_MAX;
	TAILQ_FOREACH(stream, &streams, entry)
		if (device_of(stream) == worker->device && stream->priority < best && is_ready(stream) &&
		    STAILQ_FIRST(&stream->ops)->unit == worker->unit)
			best = stream->priority;
	return best;
}

/* Chooses the stream whose first operation the unit runs next. Only kernels have priorities. */
static struct stream *choose(const struct worker *worker)
{
	int best = worker->unit == UNIT_KERNELS ? best_priority(worker) : INT_MAX;
	struct stream *stream, *chosen = NULL;
	uint32_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry) {
		const struct op *op = STAILQ_FIRST(&stream->ops);
		if (device_of(stream) == worker->device && is_ready(stream) &&
		    (op->unit == UNIT_NONE || (op->unit == worker->unit && stream->priority <= best)) &&
		    call_random(++n) == 0)
			chosen = stream;
	}
	return chosen;
}

void op_free(struct op *op)
{
	if (op->drop)
		op->drop(op);
	mark_unref(op->after);
	mark_unref(op->reaches);
	free(op);
}

/* Removes the finished first operation of the stream. The stream, and for a graph's operation its instance,
 * may be freed with it. */
static void drop_first(struct stream *stream)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	STAILQ_REMOVE_HEAD(&stream->ops, entry);
	stream_free_unused(stream);
	op_free(op);
}

static struct stream *find_idle(int device)
{
	struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (device_of(stream) == device && !STAILQ_EMPTY(&stream->ops) && !stream->is_running)
			return stream;
	return NULL;
}

/* Drops all operations of the device but those that are running: their units drop them. */
static void throw_away(int device)
{
	struct stream *stream;
	while ((stream = find_idle(device)))
		drop_first(stream);
}

/* Writes a trace line. The first device's units are named without a number. */
static void trace(const char *what, const struct stream *stream, enum unit unit, const struct op *op)
{
	char number[16] = "";
	if (op->unit == UNIT_NONE)
		return;
	if (op->context->ordinal > 0)
		snprintf(number, sizeof number, ".%d", op->context->ordinal);
	call_trace("%s %s%s %s %llu %d %llu\n", what, unit_names[unit], number, op->name, op->amount,
	           stream->priority, op->passing);
}

/* Caller does not hold the lock. */
static CUresult run_op(struct op *op)
{
	const uint64_t end = op->least_ns > 0 ? call_now_ns() + op->least_ns : 0;
	CUresult result = op->faults ? CUDA_ERROR_ILLEGAL_ADDRESS : op->run(op);
	if (result == CUDA_SUCCESS && op->least_ns > 0)
		call_sleep_until(end);
	return result;
}

static void run_first(struct stream *stream, enum unit unit)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	if (op->run) {
		stream->is_running = true;
		queue_wake_ready();
		trace("begin", stream, unit, op);
		call_unlock();
		CUresult result = run_op(op);
		call_lock();
		trace("end", stream, unit, op);
		stream->is_running = false;
		if (result != CUDA_SUCCESS)
			call_stick(op->context->ordinal, result);
	}
	if (call_stuck(op->context->ordinal) != CUDA_SUCCESS)
		return;
	if (op->reaches) {
		op->reaches->ns = call_now_ns();
		op->reaches->reached = true;
	}
	drop_first(stream);
}

static void unit_sleep(struct worker *worker)
{
	worker->sleeps = true;
	worker->looks = worker->unit == UNIT_NONE && has_to_look_again(worker->device);
	if (worker->looks)
		call_wait_us(&worker->wake, LOOK_AGAIN_US);
	else
		call_wait_for(&worker->wake);
	worker->sleeps = worker->looks = false;
}

static void *unit_main(void *arg)
{
	struct worker *worker = arg;
	is_unit = true;
	call_lock();
	while (!devices[worker->device].is_stopping) {
		bool is_lost = call_stuck(worker->device) != CUDA_SUCCESS;
		struct stream *stream = is_lost ? NULL : choose(worker);
		if (is_lost)
			throw_away(worker->device);
		if (stream)
			run_first(stream, worker->unit);
		call_wake();
		if (stream)
			continue;
		queue_wake_ready();
		unit_sleep(worker);
	}
	call_unlock();
	return NULL;
}
