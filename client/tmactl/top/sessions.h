/* SPDX-License-Identifier: Apache-2.0 */
/* The service's list of sessions, that is, of connections, with this machine's names of their users and
 * processes. */
#ifndef CLIENT_TMACTL_TOP_SESSIONS_H
#define CLIENT_TMACTL_TOP_SESSIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tmaclient.h"

/* Bar i counts latencies below 2^i us that no earlier bar counts. The last bar counts the rest. */
#define LATENCY_BARS 26

/* A session. regions, mapped_bytes and jobs are current values; the other counters count from its
 * beginning. */
struct session_row {
	uint64_t session; /* the service's number of the session */
	uint64_t uid;
	uint64_t pid; /* 0: the process is in another PID namespace */
	uint64_t age_ms;
	uint64_t requests;
	uint64_t errors;
	uint64_t bytes; /* read plus written */
	uint64_t regions;
	uint64_t mapped_bytes;
	uint64_t jobs;              /* transforms queued or running now */
	uint64_t ns;                /* the engine's time for its transforms */
	uint64_t multiprocessor_ns; /* ns of each transform times the multiprocessors that it could occupy */
	uint64_t latency[LATENCY_BARS]; /* transforms by their latency */
	char user[40];                  /* user name, or the uid if it has none; escaped */
	char name[64];                  /* name of the process, escaped; "-": unknown */
	char cgroup[200];               /* cgroup that is charged, as the service sent it; "": the user is */
};

struct session_list {
	struct session_row *rows; /* owned; in ascending order of session */
	size_t n;
};

/* Gets all sessions that the caller may see, except those of this process. Returns 0, or the library's error
 * with an empty list. */
int session_list_get(struct session_list *ret, tma_client *client);
void session_list_deinit(struct session_list *list);

/* Returns the row of a session, or NULL if it is not in the list. */
const struct session_row *session_list_find(const struct session_list *list, uint64_t session);

/* Converts the histogram `latency` of stats to bars. buckets is its list of buckets, each with its upper
 * bound; empty buckets are missing from it. If it is NULL, all bars are 0. */
void latency_read(const tma_document *buckets, uint64_t ret[LATENCY_BARS]);

/* Returns a latency in microseconds below which at least `percent` of all lie: the upper bound of a bar or,
 * for the last bar, which has none, its lower bound. Returns 0 if all bars are empty. */
uint64_t latency_percentile(const uint64_t bars[LATENCY_BARS], double percent);

/* Returns who is charged for a session, for a column: the user, or the last part of the cgroup's path,
 * escaped. The result is in text or in row. */
const char *session_owner(const struct session_row *row, char *text, size_t size);

/* Prints members of a JSON object: "uid": 1000, "user": "me", "pid": 42, "name": "python3", and, if a cgroup
 * is charged, "cgroup": "/user.slice". */
void session_print_owner_json(const struct session_row *row);

#endif
