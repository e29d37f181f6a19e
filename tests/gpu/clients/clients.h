/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases about client processes share: a service of the test's own, and processes that use it.
 *
 * A process that uses the device is a child that has not forked since it opened the driver; the program's
 * first process never opens it. A child says what is wrong on a line of TAP's for people and ends with 1; its
 * parent makes the case of that.
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
	bool is_stand_in; /* its device is: sizes stay small */
	char directory[64];
	char socket[96];
	char log[96];
};

/* Starts the program with the cuda engine and waits until it answers; false when it ends instead, and why is
 * the last line of its log. */
bool service_start(struct service *service, const char *program, char *why, size_t why_size);

/* Whether it is the process that it was at its start. */
bool service_lives(const struct service *service);

/* By SIGTERM; whether it ended with 0. Its log is shown when there is anything in it beyond the start. */
bool service_stop(struct service *service);

/* ---- Client processes --------------------------------------------------------------------------------- */

typedef void client_run(const struct service *service, uint64_t seed);

/* A child that runs it, and ends with the parent at the latest. */
pid_t client_start(client_run *run, const struct service *service, uint64_t seed);

/* Whether it runs; it is waited for in any case. */
bool client_lives(pid_t pid);

/* Whether it ended well. */
bool client_wait(pid_t pid);

/* In a child: one line, and the end of it. */
void client_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define require(condition, ...)                   \
	do {                                      \
		if (!(condition))                 \
			client_fail(__VA_ARGS__); \
	} while (0)

/* A call of the library's that succeeds. */
#define must(client, call) require((call) >= 0, "%s: %s", #call, tma_last_error(client))

/* A connection to the service. */
tma_client *client_connect(const struct service *service);

/* A number of tma_stats, by its name or "name.name". */
int64_t client_stat(tma_client *client, const char *name);

uint64_t client_now_ns(void);
void client_sleep_ms(unsigned ms);

/* ---- The cases ------------------------------------------------------------------------------------------
 */

void memory_cases(const struct service *service);  /* clients_memory.c */
void order_cases(const struct service *service);   /* clients_order.c */
void refusal_cases(const struct service *service); /* clients_refusals.c */
void kill_cases(const struct service *service);    /* clients_killed.c */
void loss_cases(const char *program);              /* clients_lost.c */

#endif
