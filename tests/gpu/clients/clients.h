/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases about client processes share: a service of the test's own, and processes that use it.
 *
 * A process that uses the device is a child that has not forked since it opened the driver; the program's
 * first process never opens it. A child reports what is wrong as a TAP diagnostic and exits with 1, and its
 * parent reports the case.
 */
#ifndef TESTS_GPU_CLIENTS_CLIENTS_H
#define TESTS_GPU_CLIENTS_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tmaclient.h"

struct service {
	pid_t pid;
	bool is_stand_in; /* the device is the stand-in, so sizes stay small */
	char directory[64];
	char socket[96];
	char log[96];
};

/* Starts the program with the cuda engine and waits until it answers. Returns false if it ends instead; why
 * is then the last line of its log. */
bool service_start(struct service *service, const char *program, char *why, size_t why_size);

/* Returns whether the service is still the process that was started. */
bool service_lives(const struct service *service);

/* Stops the service with SIGTERM and returns whether it exited with 0. Shows its log if that has more than
 * the lines of the start. */
bool service_stop(struct service *service);

/* ---- Client processes --------------------------------------------------------------------------------- */

typedef void client_run(const struct service *service, uint64_t seed);

/* Starts a child that runs the function. The child is killed when its parent ends. */
pid_t client_start(client_run *run, const struct service *service, uint64_t seed);

/* Returns whether the child runs; client_wait has to be called in any case. */
bool client_lives(pid_t pid);

/* Waits for the child. Returns whether it exited with 0. */
bool client_wait(pid_t pid);

/* Prints one line and ends the child that calls it. */
void client_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define require(condition, ...)                   \
	do {                                      \
		if (!(condition))                 \
			client_fail(__VA_ARGS__); \
	} while (0)

/* Makes a library call; ends the child if the call fails. */
#define must(client, call) require((call) >= 0, "%s: %s", #call, tma_last_error(client))

/* Returns a client that is connected to the service. */
tma_client *client_connect(const struct service *service);

/* Returns a number of tma_stats by its name, or by "name.name" for a nested one. */
int64_t client_stat(tma_client *client, const char *name);

uint64_t client_now_ns(void);
void client_sleep_ms(unsigned ms);

/* ---- The cases
 * ------------------------------------------------------------------------------------------ */

void memory_cases(const struct service *service);  /* clients_memory.c */
void order_cases(const struct service *service);   /* clients_order.c */
void refusal_cases(const struct service *service); /* clients_refusals.c */
void kill_cases(const struct service *service);    /* clients_killed.c */
void loss_cases(const char *program);              /* clients_lost.c */

#endif
