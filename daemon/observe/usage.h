/* What each user has had of the service since its start: counters that never go back.
 *
 * An account (account.h) says what a uid holds now and goes with its last connection; its row here stays.
 * Rows are bounded: uids that come when all are taken count together in one row of others. Written by the
 * loop's thread alone.
 */
#ifndef DAEMON_OBSERVE_USAGE_H
#define DAEMON_OBSERVE_USAGE_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/plan/plan.h"
#include "proto/status.h"

/* Bar i of a latency histogram counts what took less than 1 us << i, and not less than half of that; the last
 * one everything else. */
#define LATENCY_BARS 26

/* Of a uid, or of a connection. */
struct usage {
	uint64_t requests;
	uint64_t errors[STATUS_COUNT]; /* by -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t ns[FAMILY_COUNT]; /* the engine's own time */
	uint64_t latency[LATENCY_BARS];
	uint64_t latency_ns; /* all of it together */
};

#define USAGE_UIDS 256

struct usages {
	uint32_t n;
	uid_t uid[USAGE_UIDS]; /* in the order they came */
	struct usage *of[USAGE_UIDS];
	struct usage others;
};

/* A transform that was answered. */
struct transform_count {
	enum family family;
	uint64_t bytes;      /* read plus written */
	uint64_t ns;         /* the engine's own time */
	uint64_t latency_ns; /* request read to reply queued */
	int bar;             /* of latency_ns */
};

/* Zero-initialised it is empty. */
void usages_deinit(struct usages *usages);

/* The uid's row, made when it is new, valid until usages_deinit; NULL: out of memory. */
struct usage *usages_of(struct usages *usages, uid_t uid);

void usage_count_error(struct usage *usage, int status);
void usage_count_transform(struct usage *usage, const struct transform_count *done);

uint64_t usage_sum(const uint64_t *counters, int n);

/* The bar of a latency, and the upper bound of a bar in nanoseconds, exclusive; 0 for the last. */
int latency_bar(uint64_t ns);
uint64_t latency_bound(int bar);

#endif
