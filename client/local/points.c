/* SPDX-License-Identifier: Apache-2.0 */
/* Points of timelines. A request starts when the word has reached the value or the deadline has passed, and
 * sets its signal when it has ended. A word in memory of a device is read by copies and written through a
 * stream. For requests that are launched into a stream, the stream itself waits and signals, and the host
 * waits for nothing. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/clock.h"
#include "proto/memory/word.h"

/* milliseconds that a request waits if it does not say how long */
#define WAIT_MS 30000

/* Shortest and longest pause between two reads of a word in memory of a device, each of which takes a
 * copy. */
#define NAP_LEAST_NS 5000
#define NAP_MOST_NS  1000000

/* ---- Checks ------------------------------------------------------------------------------------------- */

/* A word in host memory that is pinned for streams until its region is released. */
struct local_pin {
	struct engine *engine;
	uint64_t region;
	uint64_t address;
	struct local_pin *next;
};

static int find(const struct local_session *session, uint64_t region, uint64_t offset, const char *name,
                struct tensor_place *ret, struct error *err)
{
	char region_name[16];
	int r;

	snprintf(region_name, sizeof region_name, "%s.region", name);
	r = local_place(session, true, region, offset, true, region_name, ret, err);
	return r < 0 ? r : request_check_word(ret, region, name, err);
}

static bool is_pinned(const struct local_objects *objects, uint64_t region, uint64_t address)
{
	for (const struct local_pin *pin = objects->pins; pin; pin = pin->next)
		if (pin->region == region && pin->address == address)
			return true;
	return false;
}

/* Records that a word is pinned for its region. If the region has pinned it already, this pin is undone. */
static int keep_pinned(const struct local_session *session, uint64_t region, uint64_t address,
                       struct error *err)
{
	struct local_objects *objects = session->objects;
	struct engine *engine = session->stream.device;
	struct local_pin *pin = NULL;
	bool is_kept;

	pthread_mutex_lock(&local_lock);
	is_kept = is_pinned(objects, region, address);
	if (!is_kept && (pin = malloc(sizeof *pin))) {
		*pin = (struct local_pin){
			.engine = engine, .region = region, .address = address, .next = objects->pins
		};
		objects->pins = pin;
	}
	pthread_mutex_unlock(&local_lock);
	if (!pin)
		engine_word_leave(engine, address);
	return pin || is_kept ? 0 : error_set(err, STATUS_NO_MEMORY, "out of memory for a point");
}

/* Sets *ret to the address by which the device of the stream knows the word, and pins the word if
 * necessary. */
static int reach(const struct local_session *session, uint64_t region, const struct tensor_place *place,
                 const char *name, uint64_t *ret, struct error *err)
{
	const uint64_t address = local_address(place);
	bool is_new;
	int r = engine_word_reach(session->stream.device, address, ret, &is_new, err);

	if (r < 0)
		return r;
	return is_new ? keep_pinned(session, region, address, err)
	              : local_check_reach(session, place, name, err);
}

/* Sets *ret to the address of a word. If there is a stream, this is the address by which the stream's device
 * knows the word, otherwise that in this process. */
static int find_address(const struct local_session *session, uint64_t region, uint64_t offset,
                        const char *name, uint64_t *ret, struct error *err)
{
	struct tensor_place place;
	int r = find(session, region, offset, name, &place, err);

	*ret = r == 0 ? local_address(&place) : 0;
	return r < 0 || !session->stream.device ? r : reach(session, region, &place, name, ret, err);
}

int local_points_find(const struct local_session *session, const struct order_fields *order, uint64_t has,
                      struct local_points *ret, struct error *err)
{
	const struct msg_wait *wait = has & F(order, wait) ? &order->wait : NULL;
	const struct msg_signal *signal = has & F(order, signal) ? &order->signal : NULL;
	int r = 0;

	*ret = (struct local_points){ .wait = wait, .signal = signal };
	if (has & F(order, deadline_ms))
		ret->deadline_ms = order->deadline_ms;
	if (session->stream.device && ret->deadline_ms)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "deadline_ms: what is launched into a stream begins in its turn");
	if (session->stream.device && wait && wait->has & F(wait, deadline_ms))
		return error_set(err, STATUS_UNSUPPORTED,
		                 "wait.deadline_ms: a stream waits for a point for as long as it takes");
	if (wait)
		r = find_address(session, wait->region, wait->offset, "wait", &ret->wait_address, err);
	if (r == 0 && signal)
		r = find_address(session, signal->region, signal->offset, "signal", &ret->signal_address,
		                 err);
	return r;
}

/* Removes and returns the first pin of the region, or of any region if that is 0; NULL: there is none. */
static struct local_pin *take_pin(struct local_objects *objects, uint64_t region)
{
	struct local_pin **link = &objects->pins, *pin;

	pthread_mutex_lock(&local_lock);
	while (*link && region && (*link)->region != region)
		link = &(*link)->next;
	pin = *link;
	if (pin)
		*link = pin->next;
	pthread_mutex_unlock(&local_lock);
	return pin;
}

void local_unpin(struct local_objects *objects, uint64_t region)
{
	struct local_pin *pin;

	while ((pin = take_pin(objects, region))) {
		if (objects->forks == local_forks)
			engine_word_leave(pin->engine, pin->address);
		free(pin);
	}
}

void local_unpin_all(struct local_objects *objects)
{
	local_unpin(objects, 0);
}

/* ---- Waiting ------------------------------------------------------------------------------------------ */

static void nap(long *ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = *ns }, NULL);
	*ns = *ns < NAP_MOST_NS / 2 ? 2 * *ns : NAP_MOST_NS;
}

/* Waits for a word on the session's device. Returns 1 if it has reached the value, 0 if the deadline has
 * passed or *stops is true, or a negative status. */
static int wait_on_device(struct engine *device, uint64_t address, uint64_t value, int64_t deadline_ms,
                          const atomic_bool *stops, struct error *err)
{
	long ns = NAP_LEAST_NS;

	for (;;) {
		uint64_t word;
		int r = engine_word_read(device, address, &word, err);

		if (r < 0 || word_has_come(word, value))
			return r < 0 ? r : 1;
		if (*stops || clock_ms() >= deadline_ms)
			return 0;
		nap(&ns);
	}
}

/* Waits for a word wherever it lies. Returns as wait_on_device does. */
static int wait(struct local_session *session, const struct local_points *points, int64_t deadline_ms,
                const atomic_bool *stops, struct error *err)
{
	const uint64_t address = points->wait_address, value = points->wait->value;
	bool has_begun;
	int r;

	if (!local_is_on_device(address))
		return word_wait_unless(stops, (const uint64_t *)(uintptr_t)address, value, deadline_ms);
	r = local_device_begin(session, true, &has_begun, err);
	if (r == 0)
		r = wait_on_device(session->stream.device, address, value, deadline_ms, stops, err);
	if (has_begun)
		local_stream_end(session);
	return r;
}

int local_points_look(struct local_session *session, const struct local_points *points, struct error *err)
{
	static const atomic_bool at_once = true;

	return points->wait ? wait(session, points, 0, &at_once, err) : 1;
}

static uint64_t wait_ms(const struct msg_wait *wait)
{
	const uint64_t ms = wait->has & F(wait, deadline_ms) ? wait->deadline_ms : WAIT_MS;

	return ms < INT32_MAX ? ms : INT32_MAX;
}

int64_t local_points_deadline(const struct local_points *points)
{
	return clock_ms() + (int64_t)wait_ms(points->wait);
}

int local_points_wait(struct local_session *session, const struct local_points *points, int64_t deadline_ms,
                      const atomic_bool *stops, struct error *err)
{
	int r = wait(session, points, deadline_ms, stops, err);

	if (r != 0)
		return r < 0 ? r : 0;
	if (*stops)
		return error_set(err, STATUS_CANCELED, "wait: the request is canceled");
	return error_set(err, STATUS_TIMEOUT,
	                 "wait: the word at byte %" PRIu64 " of the region had not reached %" PRIu64
	                 " after %" PRIu64 " ms",
	                 points->wait->offset, points->wait->value, wait_ms(points->wait));
}

/* ---- Signaling ---------------------------------------------------------------------------------------- */

static int signal_on_device(struct local_session *session, uint64_t address, uint64_t value,
                            struct error *err)
{
	struct engine_counts ignored;
	bool has_begun;
	int r = local_device_begin(session, true, &has_begun, err);

	if (r == 0)
		r = engine_word_signal(session->stream.device, address, value, NULL, err);
	if (r == 0)
		r = local_stream_count(&session->stream, &ignored, err); /* This waits for the stream. */
	if (has_begun)
		local_stream_end(session);
	return r;
}

int local_points_signal(struct local_session *session, const struct local_points *points, struct error *err)
{
	const uint64_t address = points->signal_address;

	if (!points->signal)
		return 0;
	if (local_is_on_device(address))
		return signal_on_device(session, address, points->signal->value, err);
	word_signal((uint64_t *)(uintptr_t)address, points->signal->value);
	return 0;
}

/* ---- In a stream -------------------------------------------------------------------------------------- */

void local_points_before(struct local_session *session, const struct local_points *points)
{
	struct local_stream *stream = &session->stream;

	stream->has_wait = points->wait;
	if (!points->wait)
		return;
	stream->wait_address = points->wait_address;
	stream->wait_value = points->wait->value;
}

int local_points_after(struct local_session *session, const struct local_points *points, int r,
                       struct error *err)
{
	struct local_stream *stream = &session->stream;

	if (r == 0)
		r = local_stream_wait(stream, err);
	stream->has_wait = false;
	if (r < 0 || !points->signal)
		return r;
	return engine_word_signal(stream->device, points->signal_address, points->signal->value,
	                          stream->cuda_stream, err);
}
