/* SPDX-License-Identifier: Apache-2.0 */
/* Who is connected: the service's list of connections, with this machine's names for their users and
 * processes. */
#ifndef CLIENT_TMACTL_TOP_SESSIONS_H
#define CLIENT_TMACTL_TOP_SESSIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tmaclient.h"

#define LATENCY_BARS 26 /* bar i: below 2^i microseconds, the last one: the rest */

struct session_row {
	uint64_t session;
	uint64_t uid;
	uint64_t pid; /* 0: of another PID namespace */
	uint64_t age_ms;
	uint64_t requests;
	uint64_t errors;
	uint64_t bytes;
	uint64_t regions;
	uint64_t mapped_bytes;
	uint64_t jobs;
	uint64_t ns; /* of the engine's time */
	uint64_t multiprocessor_ns;
	uint64_t latency[LATENCY_BARS];
	char user[40];    /* may be shown: control bytes are escaped, as in what follows */
	char name[64];    /* of the process; "-": not to be known */
	char cgroup[200]; /* that it is charged to, as the service says; "": none */
};

struct session_list {
	struct session_row *rows; /* by ascending session */
	size_t n;
};

/* All that the caller may see, this process's own connections left out. 0, or the library's error: the list
 * is empty then. */
int session_list_get(struct session_list *ret, tma_client *client);
void session_list_deinit(struct session_list *list);

/* The row of a session; NULL when it is not there. */
const struct session_row *session_list_find(const struct session_list *list, uint64_t session);

/* The service's own bars (`latency` of stats, NULL: none), which leaves out those that are empty: each says
 * by its bound which it is. */
void latency_read(const tma_document *buckets, uint64_t ret[LATENCY_BARS]);

/* The value below which at least percent of all are, in microseconds: the end of its bar, or the start of the
 * last one; 0 when there are none. */
uint64_t latency_percentile(const uint64_t bars[LATENCY_BARS], double percent);

/* Who it is charged to, for a column: the user, or the last part of the cgroup's path. */
const char *session_owner(const struct session_row *row, char *text, size_t size);

/* "uid": 1000, "user": "me", "pid": 42, "name": "python3", of a JSON object; "cgroup": "/user.slice" too, if
 * it is charged to one. */
void session_print_owner_json(const struct session_row *row);

#endif
