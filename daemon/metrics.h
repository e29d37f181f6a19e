/* Counters of the whole service, from its start. Written by the loop's thread alone. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <stdint.h>

#include "kernels/plan.h"
#include "proto/schema.h"

/* Bucket i counts what took less than 1 us << i; the last one everything else. */
#define METRICS_BUCKETS 26

struct metrics {
	uint64_t start_ns;
	uint64_t requests;
	uint64_t requests_by_method[METHOD_COUNT];
	uint64_t errors[STATUS_COUNT]; /* by -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t connections_accepted;
	uint64_t connections_refused;
	uint64_t sessions_ended;
	uint64_t latency[METRICS_BUCKETS];
};

void metrics_count_error(struct metrics *metrics, int status);

/* A transform that was answered: its family, the bytes it moved, and request read to reply queued. */
void metrics_count_transform(struct metrics *metrics, enum family family, uint64_t bytes, uint64_t ns);

/* Upper bound of a bucket in nanoseconds, exclusive; 0 for the last. */
uint64_t metrics_bucket_bound(int bucket);

#endif
