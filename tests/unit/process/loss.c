/* SPDX-License-Identifier: Apache-2.0 */
/* Tests child processes that end, and engines that come back in new ones: jobs end, memory is mapped again,
 * and nothing is left over. The front is the part of such an engine that runs in its owner's process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/process/front.h"
#include "rig.h"
#include "tests/support/tap.h"

#define BYTES (1u << 20)

extern char **environ;

TestSuite(process_loss, .timeout = 300);

static int count_entries(const char *path)
{
	DIR *directory = opendir(path);
	int n = 0;

	cr_assert(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

/* Returns how many mappings of memfds this process has; all shared memory lies in memfds. */
static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	cr_assert(file);
	while (fgets(line, sizeof line, file))
		n += strstr(line, "/memfd:") != NULL;
	fclose(file);
	return n;
}

static void expect_no_children(void)
{
	cr_expect_eq(waitpid(-1, NULL, WNOHANG), -1);
	cr_expect_eq(errno, ECHILD);
}

/* ---- The child is killed ------------------------------------------------------------------------------ */

/* An engine with jobs under way in several streams. */
struct busy {
	struct rig rig;
	int file;
	struct engine_memory *dst, *src, *words;
	struct engine_stream *stream[3];
	struct work *work;
	uint32_t n;
};

#define JOBS 200

static void busy_open(struct busy *busy)
{
	rig_start(&busy->rig, "cpu", NULL);
	busy->file = rig_file(BYTES);
	busy->work = calloc(JOBS, sizeof *busy->work);
	rig_await(&busy->rig);
	busy->dst = rig_make(&busy->rig, REGION_KIND_MEMFD, BYTES);
	busy->src = rig_map(&busy->rig, busy->file, BYTES);
	busy->words = rig_make(&busy->rig, REGION_KIND_MEMFD, 4096);
	for (int i = 0; i < 3; i++)
		busy->stream[i] = engine_stream_new(busy->rig.engine, &busy->rig.owner);
}

static void busy_close(struct busy *busy)
{
	for (int i = 0; i < 3; i++)
		engine_stream_free(busy->rig.engine, busy->stream[i]);
	engine_unmap(busy->rig.engine, busy->dst);
	engine_unmap(busy->rig.engine, busy->src);
	engine_unmap(busy->rig.engine, busy->words);
	rig_close(&busy->rig);
	close(busy->file);
	free(busy->work);
}

/* Submits jobs, some of which wait for a point that is never reached. */
static void busy_submit(struct busy *busy, uint64_t *state)
{
	busy->n = (uint32_t)oracle_between(state, 1, JOBS);
	busy->rig.n_done = 0;
	for (uint32_t i = 0; i < busy->n; i++) {
		struct work *work = &busy->work[i];

		if (oracle_random(state) % 4)
			work_init_copy(work, &busy->rig, oracle_between(state, 1, 100000), busy->dst, 0,
			               busy->src, 0);
		else
			work_init(work, &busy->rig, oracle_between(state, 1, 400), true, busy->dst,
			          busy->src);
		if (i % 3 == 2 && oracle_random(state) % 8 == 0) {
			work->job.wait = (struct engine_point){ busy->words, 0, 1 };
			work->job.wait_until_ns = UINT64_MAX;
		}
		engine_submit(busy->rig.engine, busy->stream[i % 3], &work->job);
	}
}

static void busy_check(struct busy *busy, int round)
{
	for (uint32_t i = 0; i < busy->n; i++) {
		const int status = busy->work[i].job.status;

		cr_assert(status == 0 || status == STATUS_DEVICE_LOST, "round %d: job %u: %d", round, i,
		          status);
		cr_assert(!busy->work[i].job.wait.memory || status, "round %d: job %u: its point never came",
		          round, i);
	}
}

/* Expects a transpose to succeed in memory that the previous child had mapped. */
static void expect_good(struct busy *busy, int round)
{
	static struct work work;
	uint32_t *from = busy->src->host, *to = busy->dst->host;

	for (uint32_t i = 0; i < 64 * 64; i++)
		from[i] = i * 3 + (uint32_t)round;
	busy->rig.n_done = 0;
	work_init(&work, &busy->rig, 64, true, busy->dst, busy->src);
	engine_submit(busy->rig.engine, busy->stream[0], &work.job);
	rig_wait(&busy->rig, 1);
	cr_assert_eq(work.job.status, 0, "round %d: %d", round, work.job.status);
	for (uint32_t i = 0; i < 64 * 64; i++)
		cr_assert_eq(to[i], from[i % 64 * 64 + i / 64], "round %d: element %u", round, i);
}

Test(process_loss, killed_while_another_engine_goes_on)
{
	static struct busy killed, other;
	const int rounds = (int)tap_portion(1000);
	int fds, maps;
	uint64_t state = 3;

	busy_open(&killed); /* opens what stays open in the process */
	busy_close(&killed);
	fds = count_entries("/proc/self/fd");
	maps = count_mappings();
	busy_open(&killed);
	busy_open(&other);
	for (int round = 1; round <= rounds; round++) {
		busy_submit(&killed, &state);
		expect_good(&other, round);
		usleep((useconds_t)oracle_between(&state, 0, 3000));
		if (oracle_random(&state) % 2)
			rig_turn(&killed.rig, 0);
		cr_assert_eq(kill(rig_child(&killed.rig), SIGKILL), 0);
		rig_wait(&killed.rig, killed.n);
		busy_check(&killed, round);
		expect_good(&other, round);
		rig_wait_for_return(&killed.rig, (uint32_t)round);
		expect_good(&killed, round);
	}
	cr_expect_eq(killed.rig.engine->losses, (uint32_t)rounds);
	cr_expect_eq(killed.rig.engine->dropped, 0);
	cr_expect(strstr(killed.rig.engine->lost_why, "signal 9"), "%s", killed.rig.engine->lost_why);
	cr_expect_eq(other.rig.engine->losses, 0);
	busy_close(&killed);
	busy_close(&other);
	expect_no_children();
	cr_expect_eq(count_entries("/proc/self/fd"), fds);
	cr_expect_eq(count_mappings(), maps);
}

/* ---- While it is away --------------------------------------------------------------------------------- */

/* Holds engines up while the file exists that the environment variable names. */
static void hold(const char *variable, bool is_held)
{
	if (is_held)
		cr_assert_eq(close(creat(getenv(variable), 0600)), 0);
	else
		cr_assert_eq(unlink(getenv(variable)), 0);
}

static void name_hold(const char *variable)
{
	char path[] = "/tmp/unit-process-XXXXXX";

	close(mkstemp(path));
	unlink(path);
	setenv(variable, path, 1);
}

static void wait_until_lost(struct rig *rig)
{
	for (int i = 0; !rig->engine->lost; i++) {
		rig_turn(rig, 100);
		cr_assert_lt(i, 1000);
	}
}

Test(process_loss, nobody_waits_while_it_is_away)
{
	static struct busy busy;
	static struct work work;
	const struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .size = BYTES, .fd = rig_file(BYTES), .writable = true
	};
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;

	name_hold("HOLD_BACK");
	busy_open(&busy);
	memory = rig_make(&busy.rig, REGION_KIND_MEMFD, BYTES);
	hold("HOLD_BACK", true);
	kill(rig_child(&busy.rig), SIGKILL);
	wait_until_lost(&busy.rig);
	cr_expect_eq(busy.rig.engine->losses, 1);
	busy.rig.n_done = 0;
	work_init(&work, &busy.rig, 64, true, busy.dst, busy.src);
	engine_submit(busy.rig.engine, busy.stream[0], &work.job);
	rig_wait(&busy.rig, 1);
	cr_expect_eq(work.job.status, STATUS_DEVICE_LOST);
	cr_expect_not(work.job.begun);
	cr_expect_eq(engine_map(busy.rig.engine, &handle, &memory, &err), STATUS_DEVICE_LOST);
	cr_expect(strstr(err.message, "not back yet"), "%s", err.message);
	cr_expect_eq(engine_create(busy.rig.engine, REGION_KIND_MEMFD, 4096, &memory, &made, &err),
	             STATUS_DEVICE_LOST);
	engine_unmap(busy.rig.engine, memory);
	cr_expect_eq(engine_probe(busy.rig.engine, &err), 0);
	cr_expect_not(engine_cancel(busy.rig.engine, busy.stream[0], &work.job));
	engine_stream_cancel(busy.rig.engine, busy.stream[0]);
	hold("HOLD_BACK", false);
	rig_wait_for_return(&busy.rig, 1);
	expect_good(&busy, 1);
	busy_close(&busy);
	close(handle.fd);
}

Test(process_loss, closed_while_it_is_away)
{
	static struct busy busy;

	name_hold("HOLD_BACK");
	busy_open(&busy);
	hold("HOLD_BACK", true);
	kill(rig_child(&busy.rig), SIGKILL);
	wait_until_lost(&busy.rig);
	busy_close(&busy);
	expect_no_children();
	hold("HOLD_BACK", false);
}

/* ---- Memory that does not come back ------------------------------------------------------------------- */

Test(process_loss, memory_that_cannot_be_mapped_again)
{
	static struct busy busy;
	static struct work work[2];
	int file;
	struct engine_memory *cut;
	uint64_t bytes;

	busy_open(&busy);
	file = rig_file(BYTES);
	cut = rig_map(&busy.rig, file, BYTES);
	cr_assert_eq(ftruncate(file, 4096), 0);
	kill(rig_child(&busy.rig), SIGKILL);
	rig_wait_for_return(&busy.rig, 1);
	cr_expect_eq(busy.rig.engine->dropped, 1);
	cr_expect(atomic_load(&cut->is_gone));
	cr_expect_not(atomic_load(&busy.src->is_gone));
	cr_expect_eq(engine_memory_loss(cut, &bytes), ENGINE_LOSS_GONE);
	cr_expect_eq(engine_memory_loss(busy.src, &bytes), ENGINE_LOSS_NONE);
	busy.rig.n_done = 0;
	for (int i = 0; i < 2; i++) {
		work_init(&work[i], &busy.rig, 64, true, busy.dst, i ? busy.src : cut);
		engine_submit(busy.rig.engine, busy.stream[0], &work[i].job);
	}
	rig_wait(&busy.rig, 2);
	cr_expect_eq(work[0].job.status, STATUS_DEVICE_LOST);
	cr_expect_not(work[0].job.begun);
	cr_expect_eq(work[1].job.status, 0);
	engine_unmap(busy.rig.engine, cut);
	kill(rig_child(&busy.rig), SIGKILL);
	rig_wait_for_return(&busy.rig, 2);
	cr_expect_eq(busy.rig.engine->dropped, 1);
	expect_good(&busy, 2);
	busy_close(&busy);
	close(file);
}

/* ---- Signs of life ------------------------------------------------------------------------------------ */

/* Waits until a probe of the engine has this status and message. */
static void await_probe(struct rig *rig, int status, const char *says)
{
	struct error err = { .message = "" };

	for (int i = 0; engine_probe(rig->engine, &err) != status; i++) {
		cr_assert_lt(i, 1000, "%s", err.message);
		rig_turn(rig, 10);
	}
	cr_expect(status == 0 || strstr(err.message, says), "%s", err.message);
}

Test(process_loss, a_child_that_is_silent)
{
	static struct busy busy;
	static struct work work;

	front_times.pulse_ms = 1000;
	busy_open(&busy);
	await_probe(&busy.rig, 0, NULL);
	kill(rig_child(&busy.rig), SIGSTOP);
	await_probe(&busy.rig, STATUS_TIMEOUT, "no sign of life");
	busy.rig.n_done = 0;
	work_init(&work, &busy.rig, 64, true, busy.dst, busy.src);
	engine_submit(busy.rig.engine, busy.stream[0], &work.job);
	cr_expect_not(engine_cancel(busy.rig.engine, busy.stream[0], &work.job), "nobody knows");
	kill(rig_child(&busy.rig), SIGCONT);
	rig_wait(&busy.rig, 1);
	cr_expect_eq(work.job.status, 0, "a cancel that was not waited for is none");
	await_probe(&busy.rig, 0, NULL);
	cr_expect_eq(busy.rig.engine->losses, 0);
	busy_close(&busy);
}

/* A child that hangs is killed, and the other engine notices nothing. */
Test(process_loss, a_child_that_hangs)
{
	static struct busy busy, other;
	uint64_t state = 9;

	front_times.pulse_ms = 100;
	busy_open(&busy);
	busy_open(&other);
	for (int round = 1; round <= 3; round++) {
		const pid_t pid = rig_child(&busy.rig);

		kill(pid, SIGSTOP);
		busy_submit(&busy, &state);
		rig_wait(&busy.rig, busy.n);
		for (uint32_t i = 0; i < busy.n; i++)
			cr_expect_eq(busy.work[i].job.status, STATUS_DEVICE_LOST, "round %d: job %u: %d",
			             round, i, busy.work[i].job.status);
		cr_expect(strstr(busy.rig.engine->lost_why, "has given no sign of life for 500 ms"), "%s",
		          busy.rig.engine->lost_why);
		expect_good(&other, round);
		rig_wait_for_return(&busy.rig, (uint32_t)round);
		cr_expect_neq(rig_child(&busy.rig), pid);
		expect_good(&busy, round);
		await_probe(&busy.rig, 0, NULL);
	}
	cr_expect_eq(other.rig.engine->losses, 0);
	busy_close(&busy);
	busy_close(&other);
	expect_no_children();
}

/* A call that a thread waits in ends with the child. */
static void *map_held(void *arg)
{
	struct rig *rig = arg;
	const struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                              .size = RIG_HELD_BYTES,
		                              .fd = rig_file(RIG_HELD_BYTES) };
	struct engine_memory *memory;
	struct error err;

	cr_expect_eq(engine_map(rig->engine, &handle, &memory, &err), STATUS_DEVICE_LOST);
	close(handle.fd);
	return NULL;
}

Test(process_loss, a_child_that_hangs_while_it_maps)
{
	static struct busy busy;
	pthread_t thread;

	name_hold("HOLD_MAPPING");
	front_times.pulse_ms = 100;
	busy_open(&busy);
	hold("HOLD_MAPPING", true);
	cr_assert_eq(pthread_create(&thread, NULL, map_held, &busy.rig), 0);
	usleep(100000);
	kill(rig_child(&busy.rig), SIGSTOP);
	pthread_join(thread, NULL);
	hold("HOLD_MAPPING", false);
	rig_wait_for_return(&busy.rig, 1);
	expect_good(&busy, 1);
	busy_close(&busy);
}

static void wait_for_failure(struct rig *rig, uint32_t failures)
{
	for (int i = 0; rig->engine->failures < failures; i++) {
		rig_turn(rig, 100);
		cr_assert_lt(i, 1000);
	}
}

Test(process_loss, a_child_that_hangs_while_it_opens)
{
	static struct busy busy;

	name_hold("HOLD_BACK");
	front_times.open_ms = 1000;
	busy_open(&busy);
	hold("HOLD_BACK", true);
	kill(rig_child(&busy.rig), SIGKILL);
	wait_for_failure(&busy.rig, 2);
	cr_expect(strstr(busy.rig.engine->lost_why, "has not done so within 1000 ms"), "%s",
	          busy.rig.engine->lost_why);
	hold("HOLD_BACK", false);
	rig_wait_for_return(&busy.rig, 1);
	cr_expect_eq(busy.rig.engine->losses, 1);
	expect_good(&busy, 1);
	busy_close(&busy);
	expect_no_children();
}

/* If the first child hangs while it opens, the engine does not open. */
Test(process_loss, an_engine_that_hangs_while_it_opens)
{
	struct engine_options options = { .threads = 1, .wake_fd = eventfd(0, EFD_CLOEXEC) };
	struct engine *engine;
	struct error err;

	name_hold("HOLD_BACK");
	front_times.open_ms = 200;
	hold("HOLD_BACK", true);
	cr_assert_eq(engine_process_start(&engine, "cpu", &options, &err), 0);
	cr_expect_eq(engine_process_await(engine, &err), STATUS_DEVICE_LOST);
	cr_expect(strstr(err.message, "has not done so within 200 ms"), "%s", err.message);
	hold("HOLD_BACK", false);
	close(options.wake_fd);
	expect_no_children();
}

/* Memory whose mapping hangs in a new child is left out the next time; a child that hangs altogether is
 * killed. */
Test(process_loss, a_child_that_hangs_while_it_maps_anew)
{
	static struct busy busy;
	const int file = rig_file(RIG_HELD_BYTES);
	struct engine_memory *held;
	pid_t pid;

	name_hold("HOLD_MAPPING");
	front_times.pulse_ms = 200;
	front_times.map_ms = 5000;
	busy_open(&busy);
	held = rig_map(&busy.rig, file, RIG_HELD_BYTES);
	hold("HOLD_MAPPING", true);
	kill(rig_child(&busy.rig), SIGKILL);
	wait_until_lost(&busy.rig);
	while ((pid = rig_child(&busy.rig)) == 0)
		usleep(1000);
	kill(pid, SIGSTOP);
	wait_for_failure(&busy.rig, 1);
	cr_expect(strstr(busy.rig.engine->lost_why, "no sign of life"), "%s", busy.rig.engine->lost_why);
	cr_expect_not(atomic_load(&held->is_gone));
	rig_wait_for_return(&busy.rig, 1);
	cr_expect(atomic_load(&held->is_gone));
	cr_expect_eq(busy.rig.engine->dropped, 1);
	cr_expect(strstr(busy.rig.engine->lost_why, "hung while it mapped"), "%s", busy.rig.engine->lost_why);
	expect_good(&busy, 1);
	hold("HOLD_MAPPING", false);
	engine_unmap(busy.rig.engine, held);
	busy_close(&busy);
	close(file);
	expect_no_children();
}

/* ---- The process -------------------------------------------------------------------------------------- */

Test(process_loss, an_engine_that_does_not_open)
{
	static const struct {
		const char *name, *says;
		int status;
	} rows[] = {
		{ "nothing", "no engine of the name nothing", STATUS_UNSUPPORTED },
		{ "refuses", "it does not want to", STATUS_NOT_FOUND },
		{ "crashes", "has ended", STATUS_DEVICE_LOST },
	};
	struct engine_options options = { .threads = 1, .wake_fd = eventfd(0, EFD_CLOEXEC) };

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct engine *engine;
		struct error err;

		cr_assert_eq(engine_process_start(&engine, rows[i].name, &options, &err), 0);
		cr_expect_eq(engine_process_await(engine, &err), rows[i].status, "%s: %d", rows[i].name,
		             err.status);
		cr_expect(strstr(err.message, rows[i].says), "%s: %s", rows[i].name, err.message);
	}
	close(options.wake_fd);
	expect_no_children();
}

/* Each engine opens only when all have come to open. */
Test(process_loss, several_open_side_by_side)
{
	enum { N = 4 };
	struct rig rigs[N];
	char path[] = "/tmp/unit-process-XXXXXX";

	close(mkstemp(path));
	setenv("MEET_AT", path, 1);
	for (int i = 0; i < N; i++)
		rig_start(&rigs[i], "meets", NULL);
	for (int i = 0; i < N; i++)
		rig_await(&rigs[i]);
	for (int i = 0; i < N; i++)
		rig_close(&rigs[i]);
	unlink(path);
	expect_no_children();
}

static bool has_link(pid_t pid, const char *wanted)
{
	char path[64], name[64], target[256];
	struct dirent *entry;
	DIR *directory;
	bool found = false;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	directory = opendir(path);
	cr_assert(directory);
	while ((entry = readdir(directory))) {
		snprintf(name, sizeof name, "/proc/%d/fd/%.20s", (int)pid, entry->d_name);
		const ssize_t n = readlink(name, target, sizeof target - 1);

		target[n > 0 ? n : 0] = '\0';
		found |= strcmp(target, wanted) == 0;
	}
	closedir(directory);
	return found;
}

/* The child does not inherit any descriptor, not even one without close-on-exec. */
Test(process_loss, the_child_has_no_descriptor_of_anybody)
{
	char name[64], target[256] = { 0 };
	struct rig rig;
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
	cr_assert_gt(readlink(name, target, sizeof target - 1), 0);
	rig_open(&rig, "cpu", NULL);
	cr_expect(has_link(getpid(), target));
	cr_expect_not(has_link(rig_child(&rig), target), "%s", target);
	rig_close(&rig);
	close(ends[0]);
	close(ends[1]);
}

/* A front that ends in any way takes its children with it. */
Test(process_loss, the_child_does_not_outlive_the_front)
{
	char *argv[] = { (char *)RIG_FRONT, NULL };
	posix_spawn_file_actions_t actions;
	pid_t child = 0, front;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	cr_assert_eq(posix_spawn(&front, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	cr_assert_eq(read(fds[0], &child, sizeof child), (ssize_t)sizeof child);
	cr_assert_eq(kill(child, 0), 0);
	kill(front, SIGKILL);
	waitpid(front, NULL, 0);
	for (int i = 0; kill(child, 0) == 0; i++) {
		char path[64], text[256] = { 0 };
		FILE *file;

		snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
		file = fopen(path, "r");
		if (!file || !fgets(text, sizeof text, file) || strstr(text, ") Z ")) {
			if (file)
				fclose(file);
			break; /* the process has ended, and only its parent has yet to reap it */
		}
		fclose(file);
		cr_assert_lt(i, 1000, "%s", text);
		usleep(10000);
	}
	close(fds[0]);
	close(fds[1]);
}
