/* SPDX-License-Identifier: Apache-2.0 */
/* This watches the threads that belong to untrusted users (chore.h; relay.h; engine_owner.is_stuck). A user
 * whose thread does not come back from memory is named in the log, and counted. The watch looks only while
 * such a user has work under way.
 */
#ifndef DAEMON_OBSERVE_STALLS_H
#define DAEMON_OBSERVE_STALLS_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct account;
struct server;

struct stalls {
	uv_timer_t timer; /* It runs while is_looking. */
	bool is_looking;
	uint32_t users; /* So many users had a thread that was stuck at the last look. */
};

void stalls_open(struct stalls *stalls, struct server *server);
void stalls_close(struct stalls *stalls);

/* Starts to look, if the account is untrusted: it has work under way from now on. */
void stalls_expect(struct stalls *stalls, const struct account *account);

#endif
