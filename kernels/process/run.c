/* SPDX-License-Identifier: Apache-2.0 */
/* The child's start, and its main thread. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "kernels/host/threads.h"
#include "process.h"
#include "proto/clock.h"
#include "proto/wire/socket.h"
#include "served.h"
#include "start.h"

/* Messages that are taken before the engine is driven and what has ended is told. */
#define MOST_MESSAGES 64

/* As long as the owner of an engine in its own process works for it (daemon/server.c). */
#define DRIVE_NS 20000

/* After work the thread looks for more for so long before it sleeps: a client that asks one thing after the
 * other is back sooner than a thread wakes up. Where work came within MOST_AWAKE_NS the last time, for that.
 */
#define AWAKE_NS      50000
#define MOST_AWAKE_NS 200000

#define STATS_NS 10000000

/* How long a lost engine has to end its jobs. */
#define LOST_NS 1000000000

static void serve(struct served *served);

bool engine_process_is_child(char **argv)
{
	return argv[0] && strcmp(argv[0], START_NAME) == 0;
}

/* ---- Start -------------------------------------------------------------------------------------------- */

static void wake(void *arg)
{
	shared_ring(((struct served *)arg)->shared);
}

/* Stop signals are for the front: the manager of services sends them to each process, and the front has work
 * to finish. */
static void settle_process(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, START_NAME);
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	syscall(SYS_close_range, START_FD + 1, ~0U, 0);
}

static int open_engine(struct served *served, const struct engine_process_opener *openers,
                       const struct wire_hello *hello, struct error *err)
{
	const struct engine_options options = { .threads = hello->threads,
		                                .device = hello->has_device ? hello->device : NULL,
		                                .tensor_maps = hello->tensor_maps,
		                                .plans = hello->plans,
		                                .tunes = hello->tunes,
		                                .wake = wake,
		                                .wake_arg = served,
		                                .drives = true };
	uint32_t sizes[4];

	wire_sizes(sizes);
	if (memcmp(sizes, hello->sizes, sizeof sizes) != 0)
		return error_set(err, STATUS_INTERNAL, "the process of the engine is of another program");
	for (; openers->name; openers++)
		if (strcmp(openers->name, hello->engine) == 0 && openers->open)
			return openers->open(&served->engine, &options, err);
	return error_set(err, STATUS_UNSUPPORTED, "this build has no engine of the name %s", hello->engine);
}

static bool map_shared(struct served *served, int fd)
{
	served->shared = mmap(NULL, sizeof *served->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	served->memories = mmap(NULL, SERVED_MEMORIES * sizeof *served->memories, PROT_READ | PROT_WRITE,
	                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return served->shared != MAP_FAILED && served->memories != MAP_FAILED &&
	       ring_map(&served->from_front, &served->shared->to_child, fd, SHARED_TO_CHILD_AT) &&
	       ring_map(&served->to_front, &served->shared->to_front, fd, SHARED_TO_FRONT_AT);
}

static void describe(const struct engine *engine, struct wire_ready *ret)
{
	snprintf(ret->name, sizeof ret->name, "%s", engine->name);
	memcpy(ret->device, engine->device, sizeof ret->device);
	memcpy(ret->uuid, engine->uuid, sizeof ret->uuid);
	ret->multiprocessors = engine->multiprocessors;
	ret->plans_by_phase = engine->plans_by_phase;
	ret->plan_bytes = sizeof(struct engine_plan) + engine->plans->ops->own_bytes;
	ret->kind = engine->kind;
	ret->watches_holes = engine->watches_holes;
	memcpy(ret->device_name, engine->device_name, sizeof ret->device_name);
	ret->memory_bytes = engine->memory_bytes;
}

/* 0, or what the process exits with. */
static int start(struct served *served, const struct engine_process_opener *openers)
{
	struct wire_ready ready = { .kind = REGION_KIND_MEMFD };
	struct wire_hello hello;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;

	served->control = START_FD;
	if (socket_receive(START_FD, &hello, sizeof hello, fds, &n_fds) != (ssize_t)sizeof hello ||
	    n_fds != 2) {
		fprintf(stderr, START_NAME ": it is started by tmad, to run an engine\n");
		return 2;
	}
	served->doorbell = fds[1];
	if (!map_shared(served, fds[0]))
		error_set(&ready.err, STATUS_NO_MEMORY, "the process of the engine has no memory");
	else if (open_engine(served, openers, &hello, &ready.err) == 0)
		ready.err.status = 0;
	close(fds[0]);
	if (ready.err.status == 0) {
		describe(served->engine, &ready);
		/* The front changes it once it knows that the engine is open. */
		atomic_store(&served->shared->keep_plans, hello.plans);
		atomic_store(&served->shared->tunes, hello.tunes);
		served->kept_plans = hello.plans;
	}
	if (ready.err.status == 0 && served_memory_start(served, &ready.err) == 0)
		ready.err.status = 0;
	if (socket_send(START_FD, &ready, sizeof ready, NULL, 0) < 0 || ready.err.status < 0)
		return 1;
	return 0;
}

int engine_process_run(const struct engine_process_opener *openers)
{
	struct served *served = calloc(1, sizeof *served);
	int r;

	settle_process();
	if (!served)
		return 1;
	LIST_INIT(&served->owners);
	r = start(served, openers);
	if (r == 0)
		serve(served);
	return r;
}

/* ---- The main thread ---------------------------------------------------------------------------------- */

_Noreturn void served_die(struct served *served, const char *why)
{
	if (!atomic_load(&served->shared->is_lost))
		snprintf(served->shared->lost_why, sizeof served->shared->lost_why, "%s", why);
	atomic_store(&served->shared->is_lost, true);
	_exit(1);
}

/* Its jobs end first: the front learns which of them had begun. */
static _Noreturn void lose(struct served *served)
{
	const uint64_t until_ns = clock_ns() + LOST_NS;

	while ((served->under_way > 0 || buffer_len(&served->out) > 0) && clock_ns() < until_ns) {
		const unsigned bell = atomic_load(&served->shared->bell);

		engine_drive(served->engine, 0);
		engine_reap(served->engine);
		served_flush(served);
		atomic_store(&served->shared->child_sleeps, true);
		if (served->under_way > 0 || buffer_len(&served->out) > 0)
			shared_sleep(&served->shared->bell, bell, 1000000);
		atomic_store(&served->shared->child_sleeps, false);
	}
	served_die(served, served->engine->lost_why);
}

static void answer_probe(struct served *served)
{
	struct shared *shared = served->shared;
	const unsigned asked = atomic_load(&shared->asked);
	struct error err;

	if (atomic_load(&shared->answered) == asked)
		return;
	shared->probe_status = engine_probe(served->engine, &err);
	if (shared->probe_status < 0)
		memcpy(shared->probe_text, err.message, sizeof shared->probe_text);
	atomic_store(&shared->answered, asked);
}

static void tell(struct shared_stats *to, const struct engine_cache_stats *stats)
{
	atomic_store(&to->hits, stats->hits);
	atomic_store(&to->misses, stats->misses);
	atomic_store(&to->evictions, stats->evictions);
	atomic_store(&to->entries, stats->entries);
}

/* Also adopts the number of plans that the front wants kept. */
static void write_stats(struct served *served)
{
	const uint64_t plans = atomic_load(&served->shared->keep_plans);
	struct engine_cache_stats stats;

	served->stats_ns = clock_ns();
	engine_cache_stats(served->engine, &stats);
	tell(&served->shared->maps, &stats);
	engine_plan_stats(served->engine, &stats);
	tell(&served->shared->plans, &stats);
	if (plans != served->kept_plans)
		engine_keep_plans(served->engine, plans);
	engine_tune(served->engine, atomic_load(&served->shared->tunes));
	served->kept_plans = plans;
}

/* Whether there was anything to do. */
static bool work(struct served *served)
{
	const uint32_t before = served->under_way;
	int n = 0;

	while (n < MOST_MESSAGES && served_take_message(served))
		n++;
	if (n > 0)
		engine_reap(served->engine);
	served_flush(served);
	if (engine_drive(served->engine, served->under_way > 0 ? DRIVE_NS : 0)) {
		engine_reap(served->engine);
		served_flush(served);
		engine_drive(served->engine, 0);
	}
	engine_reap(served->engine);
	served_flush(served);
	answer_probe(served);
	if (clock_ns() - served->stats_ns > STATS_NS)
		write_stats(served);
	if (served->engine->lost)
		lose(served);
	return n > 0 || served->under_way != before;
}

static bool has_news(const struct served *served, unsigned bell)
{
	return atomic_load(&served->shared->bell) != bell || atomic_load(&served->is_closing);
}

/* has_worked: since the last wait. */
static void wait_for_work(struct served *served, unsigned bell, bool spins, bool has_worked)
{
	const uint64_t awake_ns = served->gap_ns < MOST_AWAKE_NS ? MOST_AWAKE_NS : AWAKE_NS;
	uint64_t until_ns = 0;

	if (has_worked)
		served->idle_since_ns = clock_ns();
	if (has_worked && spins)
		until_ns = served->idle_since_ns + awake_ns;
	while (until_ns && clock_ns() < until_ns) {
		if (has_news(served, bell) || !ring_is_empty(&served->from_front))
			return;
		shared_pause();
	}
	write_stats(served);
	atomic_store(&served->shared->child_sleeps, true);
	if (!has_news(served, bell))
		shared_sleep(&served->shared->bell, bell, 0);
	atomic_store(&served->shared->child_sleeps, false);
}

static bool is_empty(const struct served *served)
{
	return served->under_way == 0 && atomic_load(&served->engine->memories) == 0;
}

/* Streams of the front that it has not freed are none of its jobs any more. */
static void close_engine(struct served *served)
{
	for (uint32_t i = 0; i < served->n_streams; i++)
		if (served->streams[i].stream)
			served_free_stream(served, i);
	for (uint32_t i = 0; i < served->n_layouts; i++)
		engine_plan_unref(served->layouts[i]);
	free(served->layouts);
	free(served->streams);
	free(served->jobs);
	buffer_deinit(&served->in);
	buffer_deinit(&served->out);
	engine_close(served->engine);
}

static void serve(struct served *served)
{
	const bool spins = threads_default() > 1;
	bool has_worked = false;

	while (!atomic_load(&served->is_closing)) {
		const unsigned bell = atomic_load(&served->shared->bell);

		if (work(served)) {
			if (!has_worked)
				served->gap_ns = clock_ns() - served->idle_since_ns;
			has_worked = true;
		} else if (atomic_load(&served->shared->bell) == bell) {
			wait_for_work(served, bell, spins, has_worked);
			has_worked = false;
		}
	}
	while (served_take_message(served))
		continue;
	engine_reap(served->engine);
	if (!is_empty(served))
		_exit(1); /* the front has ended without closing it */
	close_engine(served);
	exit(0);
}
