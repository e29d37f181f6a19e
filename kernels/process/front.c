/* SPDX-License-Identifier: Apache-2.0 */
/* The front as its owner has it: open, asked for what has ended, and closed. */
#include "front.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "kernels/host/fault.h"
#include "kernels/host/holes.h"
#include "kernels/host/threads.h"
#include "kernels/thread.h"
#include "process.h"
#include "proto/clock.h"

/* Spins in vain, of which the next one is then left out, the next two, and so on up to so many. */
#define MOST_DULL 64

static const struct engine_ops front_ops;

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
	r = thread_start(&front->thread, front_live, front);
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
	front_stir(front);
	pthread_join(front->thread, NULL);
	deinit(front);
}

/* ---- The owner's turn --------------------------------------------------------------------------------- */

/* Whether something has come back, or there is room for what is to be sent. */
static bool has_news(const struct front *front)
{
	const struct child *child = front->own;

	return !ring_is_empty(&child->to_front) ||
	       (buffer_len(&front->out) > 0 && !atomic_load(&child->shared->to_child.is_waited_for));
}

/* From then on the child says so. */
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

/* Whether the one job under way is likely to end within a spin. */
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
	if (!any || ns == 0) /* it may sleep now */
		ask_to_be_woken(front);
	return any;
}

/* ---- Signs of life ------------------------------------------------------------------------------------ */

/* One that is away is not silent: it is lost. */
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
