/* SPDX-License-Identifier: Apache-2.0 */
/* The program parses its options, serves until it is asked to stop, and restarts within the process after the
 * loss of the device. A child process that runs an engine is started from the same program, and only runs the
 * engine. */
#include "tmad.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/config/options.h"
#include "daemon/loop/log.h"
#include "daemon/loop/passed.h"
#include "kernels/host/scout.h"
#include "kernels/process/process.h"
#include "proto/program.h"
#include "server.h"

enum exit_code {
	EXIT_STOPPED = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
};

/* Ends the process without freeing anything, because threads may still use the server, or the loop may be in
 * the middle of an iteration. */
static _Noreturn void end_here(enum exit_code code)
{
	log_close();
	_exit(code);
}

/* Replaces the program by a new one within the process, or ends the process. Nothing is freed, because
 * threads of the lost engine and of libuv still use the server. */
static void start_again(struct server *server, char **argv)
{
	struct recovery *recovery = &server->service.recovery;
	char *settings = config_kept(reload_latest(&server->reload));
	struct error err;

	if (server->stop_asked) {
		server_abandon(server);
		log_line(LOG_LEVEL_INFO, "stopped");
		end_here(EXIT_STOPPED);
	}
	/* All jobs that had begun have ended by now, so all suspects are known. */
	penalties_count(&server->service.penalties, uv_hrtime() / 1000000);
	penalties_pass_on(&server->service.penalties);
	watchdog_feed(); /* the loop does not iterate until the engine is open again */
	if (recovery_count(recovery, uv_hrtime() / 1000000)) {
		log_pass_on();
		recovery_exec(recovery,
		              server->connections.listener.passed ? -1 : server->connections.listener.fd,
		              server->exporter.owns ? server->exporter.fd : -1, settings, argv, &err);
	} else {
		error_set(&err, STATUS_DEVICE_LOST, "the device was lost more than %d times within %d s",
		          RECOVERY_MOST, RECOVERY_WITHIN_MS / 1000);
	}
	log_line(LOG_LEVEL_ERROR, "it cannot start again: %s", err.message);
	server_abandon(server);
	end_here(EXIT_FAILED);
}

/* Handles SIGABRT while the server starts: libuv aborts if it gets no descriptor, thread or memory for
 * itself. It needs all of them at the start (watch_reserve). */
static void on_abort(int number)
{
	(void)number;
	log_line(LOG_LEVEL_ERROR, "no descriptors, threads or memory to start an event loop");
	end_here(EXIT_FAILED);
}

static int serve(const struct server_setup *setup, char **argv)
{
	struct server *server = malloc(sizeof *server);
	struct error err;

	if (!server) {
		log_line(LOG_LEVEL_ERROR, "no memory to start");
		return EXIT_FAILED;
	}
	signal(SIGABRT, on_abort);
	if (server_init(server, setup, &err) < 0) {
		log_line(LOG_LEVEL_ERROR, "%s", err.message);
		free(server);
		return EXIT_FAILED;
	}
	signal(SIGABRT, SIG_DFL);
	switch (server_run(server)) {
	case SERVER_END_STOPPED:
		break;
	case SERVER_END_STUCK:
		log_line(LOG_LEVEL_WARNING, "stopped, but some work did not end");
		end_here(EXIT_STOPPED); /* threads still use the server */
	case SERVER_END_LOST:
		start_again(server, argv);
	}
	server_deinit(server);
	free(server);
	log_line(LOG_LEVEL_INFO, "stopped");
	return EXIT_STOPPED;
}

static void say_error(const char *line)
{
	log_line(LOG_LEVEL_ERROR, "%s", line);
}

static void say_warning(const char *line)
{
	log_line(LOG_LEVEL_WARNING, "%s", line);
}

/* Reads the settings. After a restart within the process, the settings from before it are used if the files
 * are broken now. On success, sets *ret and returns EXIT_STOPPED. On failure, logs why, sets *ret to NULL and
 * returns the exit code. */
static enum exit_code settle(struct config **ret, int argc, char **argv, const struct recovery *recovery)
{
	struct config *config = config_read(argc, argv);

	*ret = NULL;
	if (config && config->n_errors > 0 && recovery->settings) {
		config_say_errors(config, say_error);
		config_free(config);
		log_line(LOG_LEVEL_ERROR, "continuing with the settings from before the restart");
		config = config_read_kept(argc, argv, recovery->settings);
	}
	if (!config) {
		log_line(LOG_LEVEL_ERROR, "no memory to read the settings");
		return EXIT_FAILED;
	}
	if (config->n_errors > 0) {
		enum exit_code code = config->no_memory ? EXIT_FAILED : EXIT_USAGE;

		config_say_errors(config, say_error);
		config_free(config);
		return code;
	}
	*ret = config;
	return EXIT_STOPPED;
}

/* Blocks SIGHUP, so that one that arrives before the loop can take it stays pending instead of ending the
 * process. */
static void hold_reload_signal(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

#define MIB (1 << 20)

/* Makes the heap grow seldom and in large steps, and keep its memory after each long reply: brk and mmap need
 * the process's mmap_lock, which other threads hold while they map and unmap clients' memory. (Before Linux
 * 6.4 the first touch of a page needs it too, only for reading.) With the defaults, each 132 KiB would be a
 * brk, and each list of 2000 regions an mmap. */
static void settle_heap(void)
{
#ifdef __GLIBC__
	mallopt(M_TOP_PAD, 8 * MIB);
	mallopt(M_TRIM_THRESHOLD, 32 * MIB);
	mallopt(M_MMAP_THRESHOLD, 32 * MIB); /* the largest value that malloc takes */
	/* Threads of users come and go, and an arena keeps the memory that it once had. */
	mallopt(M_ARENA_MAX, 2);
#endif
}

/* Runs the service. format is the log's format as the command line gives it; it applies until the settings
 * have been read. */
static int run(int argc, char **argv, const struct engine_openers *openers, enum log_format format)
{
	struct server_setup setup = { .openers = openers, .argc = argc, .argv = argv };
	struct config *config;
	struct error err;
	int r;

	settle_heap();
	hold_reload_signal();
	recovery_take(&setup.recovery);
	log_init(LOG_LEVEL_INFO);
	log_set_format(format);
	signal(SIGPIPE, SIG_IGN); /* writing to a log whose reader is gone must not end the process */
	r = settle(&config, argc, argv, &setup.recovery);
	if (!config)
		return r;
	log_set_level(config->options.log_level);
	log_set_format(config->options.log_format);
	config_say_warnings(config, say_warning);
	if (passed_init(&err) < 0) {
		log_line(LOG_LEVEL_ERROR, "%s", err.message);
		config_free(config);
		return EXIT_FAILED;
	}
	penalties_take(&setup.penalties);
	setup.options = &config->options;
	setup.config = config;
	r = serve(&setup, argv);
	config_free(config);
	return r;
}

int tmad_main(int argc, char **argv, const struct engine_openers *openers)
{
	const struct engine_process_opener by_name[] = { { "cpu", openers->cpu },
		                                         { "cuda", openers->cuda },
		                                         { NULL, NULL } };
	struct options options;
	struct error err;
	int r;

	standard_fds_hold();
	if (engine_process_is_child(argv))
		return engine_process_run(by_name);
	options_init(&options);
	if (options_parse(&options, argc, argv, &err) < 0) {
		fprintf(stderr, "tmad: %s (tmad --help lists the options)\n", err.message);
		return EXIT_USAGE;
	}
	switch (options.action) {
	case OPTIONS_HELP:
		options_print_help();
		return EXIT_STOPPED;
	case OPTIONS_VERSION:
		printf("tmad %s\n", PACKAGE_VERSION);
		return EXIT_STOPPED;
	case OPTIONS_CHECK_CONFIG:
		return config_check(argc, argv) ? EXIT_STOPPED : EXIT_USAGE;
	case OPTIONS_RUN:
		break;
	}
	scout_start();
	r = run(argc, argv, openers, options.log_format);
	scout_stop();
	log_close();
	return r;
}
