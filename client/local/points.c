/* SPDX-License-Identifier: Apache-2.0 */
/* Points of timelines. A request waits on the calling thread for the word to reach its value, until the
 * deadline, and sets its signal when it has ended. A word in memory of a device is read by copies, and
 * written by a stream. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "proto/clock.h"
#include "proto/memory/word.h"

/* Milliseconds that a request waits if it does not say how many. */
#define WAIT_MS 30000

/* Naps between two looks at a word in memory of a device, which takes a copy. */
#define NAP_LEAST_NS 5000
#define NAP_MOST_NS  1000000

/* ---- Checks ------------------------------------------------------------------------------------------- */

static int find(const struct local_session *session, uint64_t region, uint64_t offset, const char *name,
                uint64_t *ret_address, struct error *err)
{
	struct tensor_place place;
	char region_name[16];
	int r;

	snprintf(region_name, sizeof region_name, "%s.region", name);
	r = local_place(session, true, region, offset, true, region_name, &place, err);
	if (r == 0)
		r = request_check_word(&place, region, name, err);
	*ret_address = r == 0 ? local_address(&place) : 0;
	return r;
}

int local_points_find(const struct local_session *session, const struct msg_wait *wait,
                      const struct msg_signal *signal, struct local_points *ret, struct error *err)
{
	int r = 0;

	*ret = (struct local_points){ .wait = wait, .signal = signal };
	if (session->stream.device && (wait || signal))
		return error_set(err, STATUS_UNSUPPORTED,
		                 "%s: what is launched into a stream has no points; have the stream wait or "
		                 "signal by itself (tma_stream_wait, tma_stream_signal)",
		                 wait ? "wait" : "signal");
	if (wait)
		r = find(session, wait->region, wait->offset, "wait", &ret->wait_address, err);
	if (r == 0 && signal)
		r = find(session, signal->region, signal->offset, "signal", &ret->signal_address, err);
	return r;
}

/* ---- Waiting ------------------------------------------------------------------------------------------ */

static void nap(long *ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = *ns }, NULL);
	*ns = *ns < NAP_MOST_NS / 2 ? 2 * *ns : NAP_MOST_NS;
}

/* Sets *ret to whether the point has come before the deadline. The session has the device. */
static int wait_on_device(struct engine *device, uint64_t address, uint64_t value, int64_t deadline_ms,
                          bool *ret, struct error *err)
{
	long ns = NAP_LEAST_NS;

	for (;;) {
		uint64_t word;
		int r = engine_word_read(device, address, &word, err);

		*ret = r == 0 && word_has_come(word, value);
		if (r < 0 || *ret || clock_ms() >= deadline_ms)
			return r;
		nap(&ns);
	}
}

static int wait_here(struct local_session *session, const struct local_points *points, int64_t deadline_ms,
                     bool *ret, struct error *err)
{
	const uint64_t address = points->wait_address, value = points->wait->value;
	bool has_begun;
	int r;

	if (!local_is_on_device(address)) {
		*ret = word_wait((const uint64_t *)(uintptr_t)address, value, deadline_ms);
		return 0;
	}
	r = local_device_begin(session, true, &has_begun, err);
	if (r == 0)
		r = wait_on_device(session->stream.device, address, value, deadline_ms, ret, err);
	if (has_begun)
		local_stream_end(session);
	return r;
}

int local_points_wait(struct local_session *session, const struct local_points *points, struct error *err)
{
	const struct msg_wait *wait = points->wait;
	uint64_t ms;
	bool has_come = false;
	int r;

	if (!wait)
		return 0;
	ms = wait->has & F(wait, deadline_ms) ? wait->deadline_ms : WAIT_MS;
	r = wait_here(session, points, clock_ms() + (int64_t)(ms < INT32_MAX ? ms : INT32_MAX), &has_come,
	              err);
	if (r < 0 || has_come)
		return r;
	return error_set(err, STATUS_TIMEOUT,
	                 "wait: the word at byte %" PRIu64 " of the region had not reached %" PRIu64
	                 " after %" PRIu64 " ms",
	                 wait->offset, wait->value, ms);
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
		r = local_stream_count(&session->stream, &ignored, err); /* It waits for the stream. */
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
