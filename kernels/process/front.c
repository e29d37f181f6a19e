/* SPDX-License-Identifier: Apache-2.0 */
/* The front as its owner uses it: it is opened, asked for jobs that have ended, and closed. Also the front's
 * own thread, which starts a child, watches it, and starts another one when it has ended.
 *
 * The thread that starts a child has to live for as long as the child: the kernel kills the child when that
 * thread ends (PR_SET_PDEATHSIG). A child shows that it is alive by answering probes: its main thread must
 * run, and its engine must answer (engine_probe). A child that has not answered for too long is killed, which
 * is then handled as any other end. What counts is the number of missed probes and not time: if the whole
 * machine stands still for a while, as a virtual one may, that is one missed probe.
 */
#include "front.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "kernels/host/fault.h"
#include "kernels/host/backing.h"
#include "kernels/host/threads.h"
#include "kernels/thread.h"
#include "process.h"
#include "proto/clock.h"

/* After a spin during which nothing came, the next spin is skipped; after a second such spin in a row, the
 * next two; and so on up to this many. */
#define MOST_DULL 64

static const struct engine_ops front_ops;

static void *live(void *arg);
static bool open_child(struct front *front, uint64_t life, struct child **ret, struct error *err);
static void watch(struct front *front, struct child *child);
static void end_child(struct front *front, struct child *child, struct error *err);
static void wait_for_end(struct front *front, struct child *child);
static bool sleep_for(struct front *front, uint64_t ms);
static void start_pulse(struct front *front);
static int pulse_ms(const struct front *front);

static void stir(struct front *front)
{
	const uint64_t one = 1;
	ssize_t n = write(front->stir, &one, sizeof one);

	(void)n; /* The eventfd is readable already, so a failed write does not matter. */
}

/* ---- Open and close ----------------------------------------------------------------------------------- */

static int init(struct front *front, struct error *err)
{
	int r = fault_init();

	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	if (plan_cache_init(&front->plans, front->hello.plans, &front_plan_ops, front) < 0) {
		fault_deinit();
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	front->stir = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (front->stir < 0) {
		plan_cache_deinit(&front->plans);
		fault_deinit();
		return error_set(err, STATUS_NO_MEMORY, "no descriptors for an engine: %s", strerror(errno));
	}
	holes_init();
	pthread_mutex_init(&front->lock, NULL);
	pthread_cond_init(&front->changed, NULL);
	TAILQ_INIT(&front->memories);
	SLIST_INIT(&front->forgotten);
	LIST_INIT(&front->streams);
	fair_queue_init(&front->unsent);
	job_list_init(&front->done);
	return 0;
}

static void deinit(struct front *front)
{
	assert(TAILQ_EMPTY(&front->memories) && LIST_EMPTY(&front->streams) && !front->done.first);
	child_unref(front->own);
	front->own = NULL;
	plan_cache_deinit(&front->plans);
	front_forget_plans(front);
	numbers_deinit(&front->layout_numbers);
	numbers_deinit(&front->memory_numbers);
	numbers_deinit(&front->stream_numbers);
	numbers_deinit(&front->job_numbers);
	free(front->jobs);
	buffer_deinit(&front->out);
	buffer_deinit(&front->in);
	pthread_cond_destroy(&front->changed);
	pthread_mutex_destroy(&front->lock);
	holes_deinit();
	fault_deinit();
	close(front->stir);
	free(front);
}

static int hello(struct wire_hello *ret, const char *name, const struct engine_options *options,
                 struct error *err)
{
	const char *device = options->device;

	*ret = (struct wire_hello){ .threads = options->threads,
		                    .tensor_maps = options->tensor_maps,
		                    .plans = options->plans,
		                    .tunes = options->tunes,
		                    .has_device = device != NULL };
	wire_sizes(ret->sizes);
	snprintf(ret->engine, sizeof ret->engine, "%s", name);
	if (device && snprintf(ret->device, sizeof ret->device, "%s", device) >= (int)sizeof ret->device)
		return error_set(err, STATUS_INVALID_ARGUMENT, "device %.80s...: no device has such a name",
		                 device);
	return 0;
}

int engine_process_start(struct engine **ret, const char *name, const struct engine_options *options,
                         struct error *err)
{
	struct front *front = calloc(1, sizeof *front);
	int r;

	assert(options->wake_fd > 0);
	if (!front)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	front->wake = options->wake;
	front->wake_arg = options->wake_arg;
	front->wake_fd = options->wake_fd;
	front->drives = options->drives;
	front->pause_ms = options->restart_pause_ms;
	r = hello(&front->hello, name, options, err);
	if (r == 0)
		r = init(front, err);
	if (r < 0) {
		free(front);
		return r;
	}
	front->engine.ops = &front_ops;
	front->engine.plans = &front->plans;
	r = thread_start(&front->thread, live, front);
	if (r) {
		deinit(front);
		return error_set(err, STATUS_NO_MEMORY, "the thread of an engine cannot be started: %s",
		                 strerror(r));
	}
	*ret = &front->engine;
	return 0;
}

int engine_process_await(struct engine *engine, struct error *err)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	while (front->state == FRONT_OPENING)
		pthread_cond_wait(&front->changed, &front->lock);
	if (front->state != FRONT_FAILED) {
		pthread_mutex_unlock(&front->lock);
		front_catch_up(front);
		return 0;
	}
	*err = front->failed;
	pthread_mutex_unlock(&front->lock);
	pthread_join(front->thread, NULL);
	deinit(front);
	return err->status;
}

static void front_close(struct engine *engine)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	front->is_closing = true;
	pthread_mutex_unlock(&front->lock);
	stir(front);
	pthread_join(front->thread, NULL);
	deinit(front);
}

/* ---- The owner's turn --------------------------------------------------------------------------------- */

/* Returns whether something has come back, or there is room again for what is to be sent. */
static bool has_news(const struct front *front)
{
	const struct child *child = front->own;

	return !ring_is_empty(&child->to_front) ||
	       (buffer_len(&front->out) > 0 && !atomic_load(&child->shared->to_child.is_waited_for));
}

/* Asks the child to wake the owner when there is something for it. */
static void ask_to_be_woken(struct front *front)
{
	struct shared *shared = front->own->shared;

	front->may_be_woken = true;
	atomic_store(&shared->front_sleeps, true);
	if (has_news(front) && atomic_exchange(&shared->front_sleeps, false))
		front->wake(front->wake_arg);
}

static void front_reap(struct engine *engine)
{
	struct front *front = front_of(engine);

	front_catch_up(front);
	if (front->own) {
		front_receive(front);
		front_send_jobs(front);
		if (!front->drives)
			ask_to_be_woken(front);
	}
	jobs_call_back(job_list_take_all(&front->done));
}

/* Returns whether the only job under way is likely to end within a spin. */
static bool is_worth_a_spin(struct front *front)
{
	static uint32_t cpus;

	if (!cpus)
		cpus = threads_default();
	if (cpus == 1 || front->n_sent != 1 || !front->is_small || front->done.first)
		return false;
	if (front->dull == 0)
		return true;
	front->dull--;
	return false;
}

static void spin(struct front *front, uint64_t ns)
{
	const uint64_t until_ns = clock_ns() + ns;
	bool came;

	while (!(came = !ring_is_empty(&front->own->to_front)) && clock_ns() < until_ns)
		shared_pause();
	front->in_vain = came ? 0 : front->in_vain < MOST_DULL ? front->in_vain + 1 : MOST_DULL;
	front->dull = front->in_vain;
}

static bool front_drive(struct engine *engine, uint64_t ns)
{
	struct front *front = front_of(engine);
	bool any = front->done.first != NULL;

	front_catch_up(front);
	if (!front->own)
		return front->done.first != NULL;
	if (front->bell_is_due) {
		front->bell_is_due = false;
		shared_ring(front->own->shared);
		if (ns > 0 && is_worth_a_spin(front))
			spin(front, ns);
	}
	any |= !ring_is_empty(&front->own->to_front);
	if (!any || ns == 0) /* The owner may sleep now. */
		ask_to_be_woken(front);
	return any;
}

/* A child that has ended is not reported here: `lost` of the engine tells the owner of that. */
static int front_probe(struct engine *engine, struct error *err)
{
	struct front *front = front_of(engine);

	front_catch_up(front);
	if (!front->own)
		return 0;
	pthread_mutex_lock(&front->lock);
	*err = front->silence;
	pthread_mutex_unlock(&front->lock);
	return err->status;
}

static const struct engine_ops front_ops = {
	.close = front_close,
	.map = front_map,
	.create = front_make,
	.settle = front_settle,
	.unmap = front_unmap,
	.stream_new = front_stream_new,
	.stream_free = front_stream_free,
	.submit = front_submit,
	.stream_cancel = front_stream_cancel,
	.cancel = front_cancel,
	.reap = front_reap,
	.drive = front_drive,
	.probe = front_probe,
	.cache_stats = front_cache_stats,
	.link = front_link,
	.explain = front_explain,
	.add_plan_stats = front_add_plan_stats,
	.keep_plans = front_keep_plans,
	.tune = front_tune,
};

/* ---- The front's own thread ---------------------------------------------------------------------------- */

/* An engine must open in less time than the service has for its start (TimeoutStartSec=120), so that the
 * service can start without a device if that device hangs. */
struct front_times front_times = {
	.open_ms = 90000,
	.map_ms = 60000,
	.pulse_ms = 3000,
};

/* Children that live for less than LIVED_NS count as short-lived. After the first of several in a row, the
 * next child starts at once. After the second, it starts FIRST_MS later, and each further pause is twice as
 * long as the one before, up to front.pause_ms. */
#define LIVED_NS UINT64_C(60000000000)
#define FIRST_MS 100

/* In milliseconds: the time that a child has to end after it was seen to fail, so that its reason is known,
 * the time that it has to close its engine, and the interval at which its end is checked. */
#define SAY_MS   200
#define CLOSE_MS 10000
#define STEP_MS  100

static bool is_closing(struct front *front)
{
	pthread_mutex_lock(&front->lock);
	const bool is = front->is_closing;
	pthread_mutex_unlock(&front->lock);
	return is;
}

/* Publishes a new state, of which the owner's thread learns when it next looks. Adds a reference to child.
 * err is why the last child ended or could not be used. Both may be NULL. */
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

/* Wakes the owner, unless the front is being closed, because what wake_arg points to may be gone by then. */
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

static void *live(void *arg)
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

/* Sets the engine's description from what the first child says of it. */
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
	if (*ready->uuid) { /* An ordinal may mean another device the next time; the UUID does not change. */
		front->hello.has_device = true;
		snprintf(front->hello.device, sizeof front->hello.device, "%s", ready->uuid);
	}
}

/* Checks that the engine is the same as in the first child, because plans that were made for the first one
 * are used with every child. */
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
	start_pulse(front);
	/* Threads that unmap memory have to see the child. */
	publish(front, life == 1 ? FRONT_OPENING : FRONT_AWAY, child, NULL);
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

/* Waits until the child has ended or has failed too many checks, or the front is to be closed. */
static void watch(struct front *front, struct child *child)
{
	struct pollfd fds[] = { { child->control, POLLIN, 0 }, { front->stir, POLLIN, 0 } };

	while (!is_closing(front)) {
		if (poll(fds, 2, pulse_ms(front)) < 0)
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

/* Waits until a killed process has ended, which it does only when the system call that it is in returns. If
 * the owner is waiting for the engine to open or to close, this gives up after CLOSE_MS. */
static void wait_for_end(struct front *front, struct child *child)
{
	for (int ms = 0; !child_wait(child, STEP_MS, NULL) && ms < CLOSE_MS;)
		if (is_closing(front) || front->state == FRONT_OPENING)
			ms += STEP_MS;
}

/* Ends what is left of a child, and sets *err to why it ended. The owner is woken first, so that the child's
 * jobs end at once. Taking down all that the process had may take long on a device, and the next child starts
 * only after that. */
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

/* Sleeps for ms milliseconds. Returns false if the front is to be closed. */
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

/* ---- Signs of life of a child -------------------------------------------------------------------------- */

/* A child that has failed this many checks in a row is killed. With pulse_ms between checks, that takes half
 * as long as the service manager gives the service itself (WatchdogSec=30). */
#define MOST_SILENT 5

static void tell(struct front *front, const struct error *silence)
{
	pthread_mutex_lock(&front->lock);
	front->silence = *silence;
	pthread_mutex_unlock(&front->lock);
}

static void start_pulse(struct front *front)
{
	front->pulse_ns = 0;
	front->silent = 0;
	tell(front, &(struct error){ .status = 0 });
}

static int pulse_ms(const struct front *front)
{
	const uint64_t now_ns = clock_ns();

	return front->pulse_ns > now_ns ? (int)((front->pulse_ns - now_ns) / 1000000 + 1) : 0;
}

/* Returns 0, or why the child counts as silent. */
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
