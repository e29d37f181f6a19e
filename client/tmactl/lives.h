/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how often a service came back while several connections to it were open. A life is the time from one
 * start of the service to its end; lives are numbered from 0. The connections notice the end of a life one by
 * one, at different times, but it is counted once. Nothing here locks, so the caller must serialize the
 * calls. */
#ifndef CLIENT_TMACTL_LIVES_H
#define CLIENT_TMACTL_LIVES_H

#include <stdbool.h>
#include <stdint.h>

struct lives {
	uint32_t newest; /* latest life that has answered, and so how often the service came back */
	bool is_over;    /* a connection to the newest life was lost */
};

/* Returns the life that a connection belongs to if it begins to connect now. */
static inline uint32_t lives_next(const struct lives *lives)
{
	return lives->newest + lives->is_over;
}

/* Records that a request on a connection to that life was answered. That a connection was accepted is no
 * proof of a new life: while a service is killed, its socket may outlive its connections. */
static inline void lives_join(struct lives *lives, uint32_t life)
{
	if (life <= lives->newest)
		return;
	lives->newest = life;
	lives->is_over = false;
}

/* Records that a connection to that life was lost. */
static inline void lives_lose(struct lives *lives, uint32_t life)
{
	if (life == lives->newest)
		lives->is_over = true;
}

#endif
