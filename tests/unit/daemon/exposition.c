/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the text of a snapshot is the same whatever pieces it is written in. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/observe/exposition.h"

#define WHOLE (1u << 20)

/* Returns a snapshot of n users in which all numbers differ. */
static struct snapshot *sample(uint32_t n)
{
	struct snapshot *s = calloc(1, sizeof *s + n * sizeof s->uid[0]);

	s->version = "1.2.3";
	s->engine = "cuda";
	snprintf(s->device, sizeof s->device, "a \"quoted\" \\ of\ntwo lines");
	s->start_ns = UINT64_C(1700000000000000001);
	s->metrics.requests = 3;
	s->metrics.requests_by_method[METHOD_ping] = 2;
	s->metrics.ns[FAMILY_STRIDED] = 1;
	s->metrics.bytes[FAMILY_FILL] = UINT64_MAX;
	s->n_uids = n;
	for (uint32_t u = 0; u < n; u++) {
		snprintf(s->uid[u].name, sizeof s->uid[u].name, "%u", u);
		for (int i = 0; i < LATENCY_BARS; i++)
			s->uid[u].usage.latency[i] = u + (uint32_t)i;
		for (int i = 0; i < STATUS_COUNT; i++)
			s->uid[u].usage.errors[i] = i % 2 ? u : 0;
		s->uid[u].usage.latency_ns = UINT64_C(1500000000) * u;
	}
	return s;
}

static char *written(const struct snapshot *snapshot, bool openmetrics, size_t size)
{
	struct exposition exposition = { .snapshot = snapshot, .openmetrics = openmetrics };
	char *text = malloc(WHOLE), *piece = malloc(size);
	size_t len = 0, n;

	while ((n = exposition_write(&exposition, piece, size)) > 0) {
		cr_assert_leq(n, size);
		cr_assert_lt(len + n, WHOLE);
		cr_assert_eq(piece[n - 1], '\n', "a piece ends within a line");
		memcpy(text + len, piece, n);
		len += n;
	}
	cr_assert_eq(exposition_write(&exposition, piece, size), 0, "it goes on after its end");
	text[len] = '\0';
	free(piece);
	return text;
}

Test(exposition, pieces_are_the_whole)
{
	static const size_t sizes[] = { EXPOSITION_ROOM, EXPOSITION_ROOM + 1, 3001, 8192, 65536 };
	struct snapshot *snapshot = sample(20);

	for (int openmetrics = 0; openmetrics < 2; openmetrics++) {
		char *whole = written(snapshot, openmetrics, WHOLE - 1);

		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			char *text = written(snapshot, openmetrics, sizes[i]);

			cr_assert_str_eq(text, whole, "in pieces of %zu", sizes[i]);
			free(text);
		}
		free(whole);
	}
	free(snapshot);
}

Test(exposition, lines)
{
	static const char *const lines[] = {
		"\ntmad_build_info{version=\"1.2.3\",engine=\"cuda\",device=\"a \\\"quoted\\\" \\\\ of\\ntwo lines\"} 1\n",
		"\ntmad_start_time_seconds 1700000000.000000001\n",
		"\ntmad_requests_total{method=\"ping\"} 2\n",
		"\ntmad_requests_total{method=\"refused\"} 1\n",
		"\ntmad_device_seconds_total{path=\"strided\"} 0.000000001\n",
		"\ntmad_moved_bytes_total{path=\"fill\"} 18446744073709551615\n",
		"\ntmad_uid_transform_duration_seconds_bucket{uid=\"2\",le=\"1e-06\"} 2\n",
		"\ntmad_uid_transform_duration_seconds_bucket{uid=\"2\",le=\"4e-06\"} 9\n",
		"\ntmad_uid_transform_duration_seconds_bucket{uid=\"2\",le=\"16.777216\"} 350\n",
		"\ntmad_uid_transform_duration_seconds_bucket{uid=\"2\",le=\"+Inf\"} 377\n",
		"\ntmad_uid_transform_duration_seconds_sum{uid=\"2\"} 3.000000000\n",
		"\ntmad_uid_transform_duration_seconds_count{uid=\"2\"} 377\n",
		"\ntmad_uid_errors_total{uid=\"2\",status=\"OUT_OF_RANGE\"} 2\n",
	};
	struct snapshot *snapshot = sample(3);
	char *text = written(snapshot, false, WHOLE - 1);

	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		cr_assert(strstr(text, lines[i]), "no line %s", lines[i] + 1);
	cr_assert_null(strstr(text, "tmad_uid_errors_total{uid=\"0\""), "zeros of users are left out");
	free(text);
	free(snapshot);
}
