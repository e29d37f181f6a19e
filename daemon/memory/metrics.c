/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of users and their counters. There are few users, so a linear search is enough. */
#include "metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void usages_deinit(struct usages *usages)
{
	for (uint32_t i = 0; i < usages->n; i++) {
		free(usages->of[i]);
		free(usages->cgroup[i]);
	}
	usages->n = 0;
}

struct usage *usages_of(struct usages *usages, uid_t uid, const char *cgroup)
{
	const uint32_t n = usages->n;

	for (uint32_t i = 0; i < n; i++)
		if (usages->uid[i] == uid && !strcmp(usages->cgroup[i], cgroup))
			return usages->of[i];
	if (n == USAGE_UIDS)
		return &usages->others;
	usages->uid[n] = uid;
	usages->cgroup[n] = strdup(cgroup);
	usages->of[n] = calloc(1, sizeof *usages->of[0]);
	if (!usages->cgroup[n] || !usages->of[n]) {
		free(usages->cgroup[n]);
		free(usages->of[n]);
		return NULL;
	}
	usages->n++;
	return usages->of[n];
}

void usage_count_error(struct usage *usage, int status)
{
	assert(status < 0 && status >= -STATUS_COUNT);
	usage->errors[-status - 1]++;
}

void usage_count_transform(struct usage *usage, const struct transform_count *done)
{
	usage->bytes[done->family] += done->bytes;
	usage->ns[done->family] += done->ns;
	usage->multiprocessor_ns += done->ns * done->multiprocessors;
	usage->latency[done->bar]++;
	usage->latency_ns += done->latency_ns;
}

uint64_t usage_sum(const uint64_t *counters, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += counters[i];
	return sum;
}
