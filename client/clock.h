/* The time that tmactl measures by; it goes on from an unknown start. */
#ifndef CLIENT_CLOCK_H
#define CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline double clock_s(void)
{
	return (double)clock_ns() / 1e9;
}

#endif
