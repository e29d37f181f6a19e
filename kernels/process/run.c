/* SPDX-License-Identifier: Apache-2.0 */
/* The child's process starts here. Its main thread takes what the front has written to its ring, drives the
 * engine, and writes outcomes to the other ring. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "kernels/host/backing.h"
#include "kernels/host/threads.h"
#include "kernels/transform/layer_table.h"
#include "process.h"
#include "proto/clock.h"
#include "proto/wire/socket.h"
#include "served.h"

/* Maximum number of messages that are taken before the engine is driven and ended jobs are reported. */
#define MOST_MESSAGES 64

/* Nanoseconds for which this thread drives the engine at a time. The service drives an engine in its own
 * process for as long (daemon/server.c). */
#define DRIVE_NS 20000

/* Nanoseconds for which the thread spins for more work before it sleeps: a client that sends one request
 * after the other is back sooner than a thread can be woken. If the last pause between two pieces of work was
 * shorter than MOST_AWAKE_NS, the thread spins for MOST_AWAKE_NS, otherwise for AWAKE_NS. */
#define AWAKE_NS      50000
#define MOST_AWAKE_NS 200000

#define STATS_NS 10000000 /* interval at which a busy thread publishes statistics */

/* Bytes of memory that an empty buffer keeps. */
#define KEEP_BYTES ((size_t)1 << 16)

/* Nanoseconds that a lost engine has to end its jobs. */
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

/* Ignores signals that stop the service: the service manager sends them to each process, but the front needs
 * this one until it has finished its work. */
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

/* Opens the engine and answers the hello. Returns 0, or the exit status of the process. */
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
		/* The front may change these once it knows that the engine is open. */
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

/* ---- What the front has asked for --------------------------------------------------------------------- */

/* Returns the table of *n entries of `size` bytes, enlarged if need be so that it has an entry `number`. New
 * entries are zeroed. */
static void *grow(struct served *served, void *table, uint32_t *n, uint32_t number, size_t size)
{
	uint32_t room = *n ? *n : 64;
	char *grown;

	if (number < *n)
		return table;
	while (room <= number)
		room *= 2;
	grown = realloc(table, room * size);
	if (!grown)
		served_die(served, "out of memory");
	memset(grown + *n * size, 0, (room - *n) * size);
	*n = room;
	return grown;
}

static void on_layout(struct served *served, const struct wire_layout *layout)
{
	const uint32_t number = layout->layout;

	served->layouts =
	    grow(served, served->layouts, &served->n_layouts, number, sizeof(struct engine_plan *));
	served->layouts[number] = plan_cache_make(served->engine->plans, &layout->transform, layout->places);
	if (!served->layouts[number])
		served_die(served, "out of memory");
}

static void on_forget_layout(struct served *served, uint32_t number)
{
	engine_plan_unref(served->layouts[number]);
	served->layouts[number] = NULL;
}

static struct served_owner *owner_of(struct served *served, uint64_t number)
{
	struct served_owner *owner;

	LIST_FOREACH(owner, &served->owners, entry)
		if (owner->number == number)
			return owner;
	owner = calloc(1, sizeof *owner);
	if (!owner)
		served_die(served, "out of memory");
	owner->number = number;
	engine_owner_init(&owner->owner);
	LIST_INSERT_HEAD(&served->owners, owner, entry);
	return owner;
}

static struct engine_stream *stream_of(struct served *served, uint32_t number, uint64_t owner)
{
	struct served_stream *stream;

	served->streams =
	    grow(served, served->streams, &served->n_streams, number, sizeof(struct served_stream));
	stream = &served->streams[number];
	if (stream->stream)
		return stream->stream;
	stream->owner = owner_of(served, owner);
	stream->stream = engine_stream_new(served->engine, &stream->owner->owner);
	if (!stream->stream)
		served_die(served, "out of memory");
	return stream->stream;
}

static void free_stream(struct served *served, uint32_t number)
{
	struct served_stream *stream = &served->streams[number];

	engine_stream_free(served->engine, stream->stream);
	if (stream->owner->owner.streams == 0) {
		engine_owner_deinit(&stream->owner->owner);
		LIST_REMOVE(stream->owner, entry);
		free(stream->owner);
	}
	*stream = (struct served_stream){ 0 };
}

/* If the memory has lost pinned pages, tells the front, which cannot see that itself. Always returns false,
 * so that every memory is visited. */
static bool tell_pins(struct engine_memory *memory, void *arg)
{
	struct wire_number message = { { sizeof message, WIRE_PINS_LOST }, 0, 0 };
	struct served *served = arg;

	if (!memory->backing || !atomic_load(&memory->backing->is_lost))
		return false;
	while (atomic_load(&served->memories[message.number]) != memory)
		if (++message.number == atomic_load(&served->memories_end))
			return false;
	if (buffer_append(&served->out, &message, sizeof message) < 0)
		served_die(served, "out of memory");
	return false;
}

/* Calls tell_pins for the memory of a job that has failed, or of those moves of a batch that have. */
static void tell_job_pins(struct served *served, const struct engine_job *job)
{
	memory_is(job->signal.memory, tell_pins, served);
	if (!job->moves)
		move_any_memory(&job->move, tell_pins, served);
	if (job->blocks)
		blocks_any_memory(job->blocks, tell_pins, served);
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		if (job->moves[i].status == STATUS_DEVICE)
			move_any_memory(&job->moves[i], tell_pins, served);
}

/* Called by engine_reap. */
static void on_done(struct engine_job *engine_job)
{
	struct served_job *job = (struct served_job *)engine_job;
	struct served *served = job->served;

	if (engine_job->status == STATUS_DEVICE)
		tell_job_pins(served, engine_job);
	if (served_job_write(served, job) < 0)
		served_die(served, "out of memory");
	atomic_fetch_add(&served->ended, 1);
	served->jobs[job->number] = NULL;
	served->under_way--;
	served_job_free(job);
}

static void on_job(struct served *served, const struct wire_job *wire)
{
	struct engine_stream *stream = stream_of(served, wire->stream, wire->owner);
	struct served_job *job = served_job_new(served, wire);

	if (!job)
		served_die(served, "out of memory");
	job->job.on_done = on_done;
	served->jobs = grow(served, served->jobs, &served->n_jobs, job->number, sizeof(struct served_job *));
	served->jobs[job->number] = job;
	served->under_way++;
	engine_submit(served->engine, stream, &job->job);
}

/* The engine is asked only if the front has not withdrawn the request, because after that the front relies on
 * the job not being cancelled. */
static void on_cancel(struct served *served, const struct wire_number *message)
{
	struct served_job *job = message->number < served->n_jobs ? served->jobs[message->number] : NULL;
	unsigned asked = message->cancel, taken = asked | CANCEL_TAKEN;
	bool is_done;

	if (!atomic_compare_exchange_strong(&served->shared->cancel, &asked, taken))
		return;
	is_done = job && engine_cancel(served->engine, served->streams[job->stream].stream, &job->job);
	/* A front that has given up waiting may have sent another request meanwhile. */
	if (atomic_compare_exchange_strong(&served->shared->cancel, &taken,
	                                   message->cancel | (is_done ? CANCEL_DONE : CANCEL_REFUSED)))
		shared_wake(&served->shared->cancel);
}

static void on_message(struct served *served, const struct wire_head *head)
{
	const struct wire_number *number = (const void *)head;

	switch (head->kind) {
	case WIRE_LAYOUT:
		on_layout(served, (const void *)head);
		break;
	case WIRE_FORGET_LAYOUT:
		on_forget_layout(served, number->number);
		break;
	case WIRE_JOB:
		on_job(served, (const void *)head);
		break;
	case WIRE_CANCEL:
		on_cancel(served, number);
		break;
	case WIRE_CANCEL_STREAM:
		engine_stream_cancel(served->engine, served->streams[number->number].stream);
		break;
	case WIRE_FREE_STREAM:
		free_stream(served, number->number);
		break;
	default:
		served_die(served, "the front has sent what makes no sense");
	}
}

/* ---- The rings ---------------------------------------------------------------------------------------- */

/* Wakes the front if it sleeps, because something has come back or the ring has room again. */
static void wake_front(struct served *served)
{
	const uint64_t one = 1;
	ssize_t n;

	if (!atomic_load(&served->shared->front_sleeps) ||
	    !atomic_exchange(&served->shared->front_sleeps, false))
		return;
	n = write(served->doorbell, &one, sizeof one);
	(void)n;
}

static void drop(struct served *served, size_t size)
{
	if (ring_drop(&served->from_front, size))
		wake_front(served);
}

/* Collects a message that may be too long for the ring. Returns false if nothing new has come. */
static bool collect(struct served *served)
{
	size_t n;
	const char *data = ring_peek(&served->from_front, &n);
	const size_t has = buffer_len(&served->in);
	const struct wire_head *head = has > 0 ? (const void *)served->in.data : (const void *)data;
	const size_t size = head->size;

	n = n < size - has ? n : size - has;
	if (n == 0)
		return false;
	if (buffer_append(&served->in, data, n) < 0)
		served_die(served, "out of memory");
	drop(served, n);
	if (has + n < size)
		return true;
	on_message(served, (const void *)served->in.data);
	buffer_consume(&served->in, size, KEEP_BYTES);
	return true;
}

/* Carries out the next message. Returns false if there is no complete one. */
static bool take_message(struct served *served)
{
	const struct wire_head *head;
	size_t n;

	head = (const void *)ring_peek(&served->from_front, &n);
	if (buffer_len(&served->in) > 0)
		return collect(served);
	if (n < sizeof *head)
		return false;
	if (head->size > RING_ROOM / 2)
		return collect(served);
	if (n < head->size)
		return false;
	n = head->size;
	on_message(served, head);
	drop(served, n);
	return true;
}

/* Writes served->out to the ring as far as there is room. The front wakes this thread when there is room for
 * the rest. */
static void flush(struct served *served)
{
	bool any = false;

	while (buffer_len(&served->out) > 0) {
		const size_t n = ring_write(&served->to_front, served->out.data + served->out.start,
		                            buffer_len(&served->out));

		any |= n > 0;
		buffer_consume(&served->out, n, KEEP_BYTES);
		if (n == 0 && ring_wait_for_room(&served->to_front))
			break;
	}
	if (any)
		wake_front(served);
}

/* ---- The main thread ---------------------------------------------------------------------------------- */

_Noreturn void served_die(struct served *served, const char *why)
{
	if (!atomic_load(&served->shared->is_lost))
		snprintf(served->shared->lost_why, sizeof served->shared->lost_why, "%s", why);
	atomic_store(&served->shared->is_lost, true);
	_exit(1);
}

/* Ends the process, but first lets jobs end and reports them, so that the front learns which of them had
 * begun. */
static _Noreturn void lose(struct served *served)
{
	const uint64_t until_ns = clock_ns() + LOST_NS;

	while ((served->under_way > 0 || buffer_len(&served->out) > 0) && clock_ns() < until_ns) {
		const unsigned bell = atomic_load(&served->shared->bell);

		engine_drive(served->engine, 0);
		engine_reap(served->engine);
		flush(served);
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

/* Publishes the counts, and takes over the settings of plans that the front has changed. */
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

/* Does one round of work. Returns whether there was anything to do. */
static bool work(struct served *served)
{
	const uint32_t before = served->under_way;
	int n = 0;

	while (n < MOST_MESSAGES && take_message(served))
		n++;
	if (n > 0)
		engine_reap(served->engine);
	flush(served);
	if (engine_drive(served->engine, served->under_way > 0 ? DRIVE_NS : 0)) {
		engine_reap(served->engine);
		flush(served);
		engine_drive(served->engine, 0);
	}
	engine_reap(served->engine);
	flush(served);
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

/* Spins for a while if `spins` and has_worked are set, and then sleeps until the bell's value is no longer
 * `bell`. has_worked: there has been something to do since the last call. */
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

/* Frees the streams that the front has not freed, which must have no jobs, and closes the engine. */
static void close_engine(struct served *served)
{
	for (uint32_t i = 0; i < served->n_streams; i++)
		if (served->streams[i].stream)
			free_stream(served, i);
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
	while (take_message(served))
		continue;
	engine_reap(served->engine);
	if (!is_empty(served))
		_exit(1); /* The front has ended without closing the engine. */
	close_engine(served);
	exit(0);
}
