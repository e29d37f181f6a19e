/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of life of a child: that its main thread runs, and that its engine answers (engine_probe). One that
 * gives none for too long is killed; that is then as any other end.
 *
 * Probes are counted, not time: a machine that stands still for a while, as a virtual one may, has missed
 * one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "front.h"
#include "proto/clock.h"

/* So many signs of life in a row are missing at most. With the time for each, that is half of what the
 * service itself has (WatchdogSec=30). */
#define MOST_SILENT 5

static void tell(struct front *front, const struct error *silence)
{
	pthread_mutex_lock(&front->lock);
	front->silence = *silence;
	pthread_mutex_unlock(&front->lock);
}

void front_pulse_start(struct front *front)
{
	front->pulse_ns = 0;
	front->silent = 0;
	tell(front, &(struct error){ .status = 0 });
}

int front_pulse_ms(const struct front *front)
{
	const uint64_t now_ns = clock_ns();

	return front->pulse_ns > now_ns ? (int)((front->pulse_ns - now_ns) / 1000000 + 1) : 0;
}

/* 0, or why it counts as silent. */
static int look(const struct child *child, struct error *err)
{
	const struct shared *shared = child->shared;

	if (atomic_load(&shared->answered) != atomic_load(&shared->asked))
		return error_set(err, STATUS_TIMEOUT, "process %d, which runs the engine: no sign of life",
		                 (int)child->pid);
	if (shared->probe_status < 0)
		return error_set(err, shared->probe_status, "process %d, which runs the engine: %.200s",
		                 (int)child->pid, shared->probe_text);
	return 0;
}

static void ask(struct shared *shared)
{
	if (atomic_load(&shared->answered) == atomic_load(&shared->asked))
		atomic_fetch_add(&shared->asked, 1);
	shared_ring(shared);
}

bool front_pulse(struct front *front, struct child *child)
{
	const uint64_t now_ns = clock_ns();
	struct error silence = { .status = 0 };

	if (now_ns < front->pulse_ns)
		return front->silent < MOST_SILENT;
	front->pulse_ns = now_ns + front_times.pulse_ms * 1000000;
	if (look(child, &silence) < 0)
		front->silent++;
	else
		front->silent = 0;
	if (front->silent == MOST_SILENT) {
		error_set(&silence, STATUS_DEVICE_LOST,
		          "process %d, which ran the engine, has given no sign of life for %" PRIu64
		          " ms, and was ended",
		          (int)child->pid, MOST_SILENT * front_times.pulse_ms);
		child_kill(child);
	}
	tell(front, &silence);
	ask(child->shared);
	return front->silent < MOST_SILENT;
}
