/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock that everything measures by. Its zero is arbitrary, and nobody can set it. */
#ifndef PROTO_CLOCK_H
#define PROTO_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline int64_t clock_ms(void)
{
	return (int64_t)(clock_ns() / 1000000);
}

static inline double clock_s(void)
{
	return (double)clock_ns() / 1e9;
}

#endif
