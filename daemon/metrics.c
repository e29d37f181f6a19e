/* Counting and the latency histogram's bounds. */
#include "metrics.h"

#include <assert.h>

void metrics_count_error(struct metrics *metrics, int status)
{
	assert(status < 0 && status >= -STATUS_COUNT);
	metrics->errors[-status - 1]++;
}

uint64_t metrics_bucket_bound(int bucket)
{
	return bucket == METRICS_BUCKETS - 1 ? 0 : UINT64_C(1000) << bucket;
}

void metrics_count_transform(struct metrics *metrics, enum family family, uint64_t bytes, uint64_t ns)
{
	int bucket = 0;

	while (bucket < METRICS_BUCKETS - 1 && ns >= metrics_bucket_bound(bucket))
		bucket++;
	metrics->latency[bucket]++;
	metrics->bytes[family] += bytes;
}
