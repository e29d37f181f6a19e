/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the whole service since its start. Only the loop's thread writes them. */
#ifndef DAEMON_OBSERVE_METRICS_H
#define DAEMON_OBSERVE_METRICS_H

#include <stdint.h>

#include "kernels/explanation.h"
#include "proto/schema.h"
#include "usage.h"

struct metrics {
	uint64_t start_ns;
	uint64_t requests;
	uint64_t requests_by_method[METHOD_COUNT];
	uint64_t errors[STATUS_COUNT]; /* by -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t ns[FAMILY_COUNT]; /* time of the engine */
	uint64_t connections_accepted;
	uint64_t connections_refused;
	uint64_t sessions_ended;
	uint64_t latency[FAMILY_COUNT][LATENCY_BARS];
	uint64_t latency_ns[FAMILY_COUNT];
};

void metrics_count_error(struct metrics *metrics, int status);
void metrics_count_transform(struct metrics *metrics, const struct transform_count *done);

#endif
