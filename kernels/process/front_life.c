/* SPDX-License-Identifier: Apache-2.0 */
/* The front's own thread: it starts a child, watches it, and when that has ended starts another one.
 *
 * The thread that starts a process has to live for as long as that: the kernel ends the child with it
 * (PR_SET_PDEATHSIG).
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "front.h"
#include "proto/clock.h"

/* To open takes less than the service has for its start (TimeoutStartSec=120): where one device of several
 * hangs, it starts without that. */
struct front_times front_times = {
	.open_ms = 90000,
	.map_ms = 60000,
	.pulse_ms = 3000,
};

/* A child that lived for less is one in a row, and the next one starts after a pause: the first time at once,
 * then FIRST_MS, and twice that each time. */
#define LIVED_NS UINT64_C(60000000000)
#define FIRST_MS 100

/* How long a child may take to say why it ends, and to close its engine. */
#define SAY_MS   200
#define CLOSE_MS 10000
#define STEP_MS  100

static bool open_child(struct front *front, uint64_t life, struct child **ret, struct error *err);
static void watch(struct front *front, struct child *child);
static void end_child(struct front *front, struct child *child, struct error *err);
static void wait_for_end(struct front *front, struct child *child);
static bool sleep_for(struct front *front, uint64_t ms);

void front_stir(struct front *front)
{
	const uint64_t one = 1;
	ssize_t n = write(front->stir, &one, sizeof one);

	(void)n; /* it is readable already */
}

void front_give_up(struct child *child)
{
	child_kill(child);
}

static bool is_closing(struct front *front)
{
	pthread_mutex_lock(&front->lock);
	const bool is = front->is_closing;
	pthread_mutex_unlock(&front->lock);
	return is;
}

/* The owner learns of it when it is woken. */
static void publish(struct front *front, enum front_state state, struct child *child, const struct error *err)
{
	struct child *before;

	pthread_mutex_lock(&front->lock);
	before = front->child;
	front->child = child ? child_ref(child) : NULL;
	if (child)
		front_tell_plans(front, child);
	if (err)
		front->failed = *err;
	front->state = state;
	atomic_fetch_add(&front->news, 1);
	pthread_cond_broadcast(&front->changed);
	pthread_mutex_unlock(&front->lock);
	child_unref(before);
}

/* Not any more when the front is being closed: the owner may have nothing left to wake. */
static void wake(struct front *front)
{
	if (!is_closing(front))
		front->wake(front->wake_arg);
}

static uint64_t pause_after(uint32_t short_lives, uint64_t most_ms)
{
	uint64_t ms = short_lives > 1 ? FIRST_MS : 0;

	for (uint32_t i = 2; i < short_lives && ms < most_ms; i++)
		ms *= 2;
	return ms < most_ms ? ms : most_ms;
}

static void count_failure(struct front *front)
{
	pthread_mutex_lock(&front->lock);
	front->failures++;
	pthread_mutex_unlock(&front->lock);
}

void *front_live(void *arg)
{
	struct front *front = arg;
	uint32_t short_lives = 0;

	pthread_setname_np(pthread_self(), "engine-front");
	for (uint64_t life = 1; !is_closing(front); life++) {
		const uint64_t start_ns = clock_ns();
		struct child *child = NULL;
		struct error err;

		if (open_child(front, life, &child, &err)) {
			publish(front, FRONT_UP, child, NULL);
			if (life > 1)
				wake(front);
			watch(front, child);
			end_child(front, child, &err);
		} else if (life == 1) {
			publish(front, FRONT_FAILED, NULL, &err);
			return NULL;
		} else {
			count_failure(front);
			publish(front, FRONT_AWAY, NULL, &err);
			wake(front);
		}
		short_lives = clock_ns() - start_ns < LIVED_NS ? short_lives + 1 : 1;
		if (!sleep_for(front, pause_after(short_lives, front->pause_ms)))
			break;
	}
	return NULL;
}

/* ---- Start -------------------------------------------------------------------------------------------- */

/* Of the first one: what the engine is. */
static void describe(struct front *front, const struct wire_ready *ready)
{
	struct engine *engine = &front->engine;

	memcpy(front->name, ready->name, sizeof front->name);
	memcpy(engine->device, ready->device, sizeof engine->device);
	memcpy(engine->uuid, ready->uuid, sizeof engine->uuid);
	engine->name = front->name;
	engine->multiprocessors = ready->multiprocessors;
	engine->plans_by_phase = ready->plans_by_phase;
	front->plans.remote_bytes = ready->plan_bytes;
	engine->kind = ready->kind;
	engine->watches_holes = ready->watches_holes;
	memcpy(engine->device_name, ready->device_name, sizeof engine->device_name);
	engine->memory_bytes = ready->memory_bytes;
	engine->returns = true;
	if (*ready->uuid) { /* an ordinal may be another device's the next time */
		front->hello.has_device = true;
		snprintf(front->hello.device, sizeof front->hello.device, "%s", ready->uuid);
	}
}

/* Plans that were made for the first one have to be right for each. */
static int check_same(const struct front *front, const struct wire_ready *ready, struct error *err)
{
	const struct engine *engine = &front->engine;

	if (strcmp(engine->uuid, ready->uuid) == 0 && strcmp(engine->name, ready->name) == 0 &&
	    engine->kind == ready->kind && engine->multiprocessors == ready->multiprocessors &&
	    engine->plans_by_phase == ready->plans_by_phase)
		return 0;
	return error_set(err, STATUS_DEVICE_LOST, "the engine has come back as another one: %s, %s",
	                 ready->name, ready->device);
}

static int prepare(struct front *front, struct child *child, uint64_t life, struct error *err)
{
	struct wire_ready ready;
	uint32_t dropped = 0;
	int r = child_await(child, (int)front_times.open_ms, front->stir, &ready, err);

	if (r == 0 && life == 1)
		describe(front, &ready);
	else if (r == 0)
		r = check_same(front, &ready, err);
	if (r < 0)
		return r;
	front_pulse_start(front);
	publish(front, life == 1 ? FRONT_OPENING : FRONT_AWAY, child, NULL); /* to those who unmap */
	r = front_map_anew(front, child, &dropped, err);
	pthread_mutex_lock(&front->lock);
	front->dropped += dropped;
	pthread_mutex_unlock(&front->lock);
	if (r < 0 && front->silence.status == STATUS_DEVICE_LOST)
		*err = front->silence;
	return r;
}

static bool open_child(struct front *front, uint64_t life, struct child **ret, struct error *err)
{
	struct wire_hello hello;
	struct child *child;

	pthread_mutex_lock(&front->lock);
	hello = front->hello;
	pthread_mutex_unlock(&front->lock);
	if (child_start(&child, life, &hello, front->wake_fd, err) < 0)
		return false;
	if (prepare(front, child, life, err) == 0) {
		*ret = child;
		return true;
	}
	child_kill(child);
	child_cut(child);
	wait_for_end(front, child);
	child_unref(child);
	return false;
}

/* ---- Watch -------------------------------------------------------------------------------------------- */

static void empty(int fd)
{
	uint64_t n;
	ssize_t r = read(fd, &n, sizeof n);

	(void)r;
}

/* Until the child has ended, or has been silent for too long, or the front is to be closed. */
static void watch(struct front *front, struct child *child)
{
	struct pollfd fds[] = { { child->control, POLLIN, 0 }, { front->stir, POLLIN, 0 } };

	while (!is_closing(front)) {
		if (poll(fds, 2, front_pulse_ms(front)) < 0)
			continue;
		if (fds[0].revents)
			return;
		if (fds[1].revents)
			empty(front->stir);
		if (!front_pulse(front, child))
			return;
	}
}

/* ---- The end ------------------------------------------------------------------------------------------ */

static void say_why(const struct front *front, const struct child *child, int status, bool has_ended,
                    struct error *err)
{
	const struct shared *shared = child->shared;

	if (front->silence.status == STATUS_DEVICE_LOST)
		*err = front->silence;
	else if (atomic_load(&shared->is_lost))
		error_set(err, STATUS_DEVICE_LOST, "%s", shared->lost_why);
	else if (!has_ended)
		error_set(err, STATUS_DEVICE_LOST, "process %d, which ran the engine, does not answer",
		          (int)child->pid);
	else if (WIFSIGNALED(status))
		error_set(err, STATUS_DEVICE_LOST,
		          "process %d, which ran the engine, was ended by signal %d (%s)", (int)child->pid,
		          WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		error_set(err, STATUS_DEVICE_LOST,
		          "process %d, which ran the engine, has ended with status %d", (int)child->pid,
		          WEXITSTATUS(status));
}

/* A process that was killed and is in the middle of a call of the kernel's ends with that. Who opens or
 * closes the engine does not wait for it for ever. */
static void wait_for_end(struct front *front, struct child *child)
{
	for (int ms = 0; !child_wait(child, STEP_MS, NULL) && ms < CLOSE_MS;)
		if (is_closing(front) || front->state == FRONT_OPENING)
			ms += STEP_MS;
}

/* Jobs end before everything that the process had has been taken down, which may take long on a device; the
 * next one starts after it. */
static void end_child(struct front *front, struct child *child, struct error *err)
{
	int status = 0;
	bool has_ended;

	if (is_closing(front)) {
		child_close(child);
		if (!child_wait(child, CLOSE_MS, NULL))
			child_kill(child);
	}
	has_ended = child_wait(child, SAY_MS, &status);
	say_why(front, child, status, has_ended, err);
	publish(front, FRONT_AWAY, NULL, err);
	wake(front);
	child_kill(child);
	child_cut(child);
	wait_for_end(front, child);
	child_unref(child);
}

/* false: the front is to be closed. */
static bool sleep_for(struct front *front, uint64_t ms)
{
	const uint64_t until_ns = clock_ns() + ms * 1000000;
	struct pollfd fd = { front->stir, POLLIN, 0 };

	while (!is_closing(front)) {
		const uint64_t now_ns = clock_ns();

		if (now_ns >= until_ns)
			return true;
		if (poll(&fd, 1, (int)((until_ns - now_ns) / 1000000 + 1)) > 0)
			empty(front->stir);
	}
	return false;
}
