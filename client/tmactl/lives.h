/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how often a service came back while several connections to it were open. Each of them finds the end
 * of a life of the service by itself, at its own time; together they count it once. Lives have numbers, from
 * 0 on.
 */
#ifndef CLIENT_TMACTL_LIVES_H
#define CLIENT_TMACTL_LIVES_H

#include <stdbool.h>
#include <stdint.h>

struct lives {
	uint32_t newest; /* life that a connection has joined; also how often the service has come back */
	bool is_over;    /* a connection has found that this life ended */
};

/* The life that a connection joins if it begins to connect now. */
static inline uint32_t lives_next(const struct lives *lives)
{
	return lives->newest + lives->is_over;
}

/* A connection of that life has been answered. That one is accepted says nothing: a service that is being
 * killed may lose its connections before its socket. */
static inline void lives_join(struct lives *lives, uint32_t life)
{
	if (life <= lives->newest)
		return;
	lives->newest = life;
	lives->is_over = false;
}

/* A connection to that life is lost. */
static inline void lives_lose(struct lives *lives, uint32_t life)
{
	if (life == lives->newest)
		lives->is_over = true;
}

#endif
