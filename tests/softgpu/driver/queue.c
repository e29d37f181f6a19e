/* SPDX-License-Identifier: Apache-2.0 */
/* The device: units that run the operations of all streams, and the streams themselves.
 *
 * One unit runs kernels and what needs no bus, two carry bytes to the device and to the host. Each is a
 * thread and runs one operation at a time, beside the others. What stands for no work (a mark, a word) is
 * done by whichever unit has nothing else, or by one that has no other task.
 *
 * An operation stays first in its stream while it runs. Which streams can go on is decided by the events that
 * their first operations wait for and by the default stream's rule: it and the blocking ones take turns in
 * the order submitted. Of kernels that can start, only those of the highest priority may; then chance
 * decides. When something sticks, all that is left is thrown away and no mark of it is ever reached.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "call.h"
#include "softgpu.h"

#define LOOK_AGAIN_US 20

static TAILQ_HEAD(, stream) streams = TAILQ_HEAD_INITIALIZER(streams);
static uint64_t last_number;
static struct stream legacy = {
	.is_legacy = true,
	.is_blocking = true,
	.ops = STAILQ_HEAD_INITIALIZER(legacy.ops),
};

static struct {
	pthread_t thread;
	pthread_cond_t wake;
	bool sleeps; /* until wake */
	bool looks;  /* or for LOOK_AGAIN_US */
} units[UNITS];

static const char *const unit_names[UNITS] = {
	[UNIT_KERNELS] = "kernels", [UNIT_TO_DEVICE] = "to_device", [UNIT_TO_HOST] = "to_host"
};

static unsigned started; /* units */
static bool is_stopping;

static void *unit_main(void *arg);
static void throw_away(void);

/* ---- The units --------------------------------------------------------------------------------------- */

static void unit_wake(enum unit unit)
{
	if (units[unit].sleeps)
		pthread_cond_signal(&units[unit].wake);
	units[unit].sleeps = false;
}

void queue_wake(void)
{
	for (int unit = 0; unit < UNITS; unit++)
		unit_wake((enum unit)unit);
}

/* No signals, but for SIGBUS: a GPU goes on with the pages that it has pinned when a file has lost them, and
 * here whoever handles that signal for the driver's callers puts others there. */
static bool unit_start(enum unit unit)
{
	sigset_t all, old;
	int r;
	pthread_cond_init(&units[unit].wake, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_create(&units[unit].thread, NULL, unit_main, &units[unit]);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r == 0;
}

CUresult queue_start(void)
{
	if (started > 0)
		return CUDA_SUCCESS;
	if (TAILQ_EMPTY(&streams))
		TAILQ_INSERT_HEAD(&streams, &legacy, entry);
	while (started < UNITS && unit_start((enum unit)started))
		started++;
	if (started == UNITS)
		return CUDA_SUCCESS;
	queue_stop();
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void queue_stop(void)
{
	if (started == 0)
		return;
	is_stopping = true;
	queue_wake();
	call_wake();
	call_unlock();
	for (unsigned unit = 0; unit < started; unit++)
		pthread_join(units[unit].thread, NULL);
	call_lock();
	throw_away();
	started = 0;
	is_stopping = false;
}

/* Whether another stream's operation has to end before. */
static bool is_behind(const struct stream *stream, const struct op *op)
{
	const struct stream *other;
	if (!stream->is_blocking)
		return false;
	TAILQ_FOREACH(other, &streams, entry) {
		const struct op *first = STAILQ_FIRST(&other->ops);
		if (other->is_blocking && other->is_legacy != stream->is_legacy && first &&
		    first->number < op->number)
			return true;
	}
	return false;
}

/* Whether a kernel keeps everything else from going on. */
static bool is_held_up(void)
{
	const struct stream *stream;
	if (!call_is_stuck_by_kernels())
		return false;
	TAILQ_FOREACH(stream, &streams, entry)
		if (stream->is_running && STAILQ_FIRST(&stream->ops)->unit == UNIT_KERNELS)
			return true;
	return false;
}

static bool is_ready(const struct stream *stream)
{
	const struct op *op = STAILQ_FIRST(&stream->ops);
	return op && !is_held_up() && !stream->is_running && (!op->after || op->after->reached) &&
	       !is_behind(stream, op) && (!op->is_due || op->is_due(op));
}

/* Whether something may become due that nobody tells of. */
static bool has_to_look_again(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (!STAILQ_EMPTY(&stream->ops) && STAILQ_FIRST(&stream->ops)->is_due)
			return true;
	return false;
}

/* Wakes the units that have something to do, and the one that has to look again. */
static void wake_units(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (is_ready(stream))
			unit_wake(STAILQ_FIRST(&stream->ops)->unit);
	if (!units[UNIT_NONE].looks && has_to_look_again())
		unit_wake(UNIT_NONE);
}

/* The best priority of the unit's operations that can start. */
static int best_priority(enum unit unit)
{
	const struct stream *stream;
	int best = INT_MAX;
	TAILQ_FOREACH(stream, &streams, entry)
		if (stream->priority < best && is_ready(stream) && STAILQ_FIRST(&stream->ops)->unit == unit)
			best = stream->priority;
	return best;
}

/* For the unit; priorities are those of kernels alone. */
static struct stream *choose(enum unit unit)
{
	int best = unit == UNIT_KERNELS ? best_priority(unit) : INT_MAX;
	struct stream *stream, *chosen = NULL;
	uint32_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry) {
		const struct op *op = STAILQ_FIRST(&stream->ops);
		if (is_ready(stream) &&
		    (op->unit == UNIT_NONE || (op->unit == unit && stream->priority <= best)) &&
		    call_random(++n) == 0)
			chosen = stream;
	}
	return chosen;
}

static void op_free(struct op *op)
{
	mark_unref(op->after);
	mark_unref(op->reaches);
	free(op);
}

/* The first operation is over; so may be the stream. */
static void drop_first(struct stream *stream)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	STAILQ_REMOVE_HEAD(&stream->ops, entry);
	op_free(op);
	if (stream->is_destroyed && STAILQ_EMPTY(&stream->ops)) {
		TAILQ_REMOVE(&streams, stream, entry);
		free(stream);
	}
}

/* But for operations that run: their units drop them. */
static void throw_away(void)
{
	struct stream *stream, *next;
	for (stream = TAILQ_FIRST(&streams); stream; stream = next) {
		next = TAILQ_NEXT(stream, entry);
		for (bool more = !STAILQ_EMPTY(&stream->ops) && !stream->is_running; more;) {
			more = STAILQ_NEXT(STAILQ_FIRST(&stream->ops), entry) != NULL;
			drop_first(stream);
		}
	}
}

static void run_first(struct stream *stream, enum unit unit)
{
	struct op *op = STAILQ_FIRST(&stream->ops);
	if (op->run) {
		stream->is_running = true;
		wake_units();
		if (op->unit != UNIT_NONE)
			call_trace("begin %s %s %llu %d %llu\n", unit_names[unit], op->name, op->amount,
			           stream->priority, op->passing);
		call_unlock();
		CUresult result = op->run(op);
		call_lock();
		if (op->unit != UNIT_NONE)
			call_trace("end %s %s %llu %d %llu\n", unit_names[unit], op->name, op->amount,
			           stream->priority, op->passing);
		stream->is_running = false;
		if (result != CUDA_SUCCESS)
			call_stick(result);
	}
	if (call_stuck() != CUDA_SUCCESS)
		return;
	if (op->reaches) {
		op->reaches->ns = call_now_ns();
		op->reaches->reached = true;
	}
	drop_first(stream);
}

static void unit_sleep(enum unit unit)
{
	units[unit].sleeps = true;
	units[unit].looks = unit == UNIT_NONE && has_to_look_again();
	if (units[unit].looks)
		call_wait_us(&units[unit].wake, LOOK_AGAIN_US);
	else
		call_wait_for(&units[unit].wake);
	units[unit].sleeps = units[unit].looks = false;
}

static void *unit_main(void *arg)
{
	enum unit unit = (enum unit)((__typeof__(&units[0]))arg - units);
	call_lock();
	while (!is_stopping) {
		bool is_lost = call_stuck() != CUDA_SUCCESS;
		struct stream *stream = is_lost ? NULL : choose(unit);
		if (is_lost)
			throw_away();
		if (stream)
			run_first(stream, unit);
		call_wake();
		if (stream)
			continue;
		wake_units();
		unit_sleep(unit);
	}
	call_unlock();
	return NULL;
}

/* ---- Streams ------------------------------------------------------------------------------------------ */

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority)
{
	struct stream *stream = malloc(sizeof *stream);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stream = (struct stream){ .context = context, .is_blocking = blocking, .priority = priority };
	STAILQ_INIT(&stream->ops);
	TAILQ_INSERT_TAIL(&streams, stream, entry);
	*ret = stream;
	return CUDA_SUCCESS;
}

void stream_destroy(struct stream *stream)
{
	stream->is_destroyed = true;
	if (!STAILQ_EMPTY(&stream->ops))
		return;
	TAILQ_REMOVE(&streams, stream, entry);
	free(stream);
}

struct stream *stream_find(CUstream handle)
{
	struct stream *stream;
	if (!handle || handle == CU_STREAM_LEGACY)
		return &legacy;
	TAILQ_FOREACH(stream, &streams, entry)
		if ((CUstream)stream == handle && !stream->is_destroyed && !stream->is_legacy)
			return stream;
	return NULL;
}

size_t stream_live(void)
{
	const struct stream *stream;
	size_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry)
		n += !stream->is_legacy;
	return n;
}

void stream_push(struct stream *stream, struct op *op)
{
	op->number = ++last_number;
	STAILQ_INSERT_TAIL(&stream->ops, op, entry);
	wake_units();
}

CUresult stream_drain(struct stream *stream)
{
	while (!STAILQ_EMPTY(&stream->ops) && call_stuck() == CUDA_SUCCESS)
		call_wait();
	return call_stuck();
}

CUresult stream_drain_all(void)
{
	struct stream *stream = TAILQ_FIRST(&streams);
	while (stream && call_stuck() == CUDA_SUCCESS) {
		if (STAILQ_EMPTY(&stream->ops))
			stream = TAILQ_NEXT(stream, entry);
		else {
			call_wait(); /* it may be gone then */
			stream = TAILQ_FIRST(&streams);
		}
	}
	return call_stuck();
}

static bool is_idle(void)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (!STAILQ_EMPTY(&stream->ops))
			return false;
	return true;
}

CUresult queue_drain(void)
{
	while (!is_idle() && call_stuck() == CUDA_SUCCESS)
		call_wait();
	return call_stuck();
}

/* ---- Marks -------------------------------------------------------------------------------------------- */

struct mark *mark_new(void)
{
	struct mark *mark = malloc(sizeof *mark);
	if (mark)
		*mark = (struct mark){ .refs = 1 };
	return mark;
}

void mark_unref(struct mark *mark)
{
	if (mark && --mark->refs == 0)
		free(mark);
}
