/* SPDX-License-Identifier: Apache-2.0 */
/* Gets the list of sessions, which the service sends in pages. Names come from the user database and /proc,
 * and are untrusted, because a process chooses its own name. */
#include "sessions.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tmactl/field.h"
#include "client/tmactl/terminal/print.h"

static void read_name(uint64_t pid, char *ret, size_t size)
{
	char path[48], raw[32];
	ssize_t len = -1;
	int fd;

	snprintf(path, sizeof path, "/proc/%" PRIu64 "/comm", pid);
	fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		len = read(fd, raw, sizeof raw - 1);
		close(fd);
	}
	if (len > 0 && raw[len - 1] == '\n')
		len--;
	if (len <= 0)
		snprintf(ret, size, "-");
	else
		print_escaped(raw, (size_t)len, ret, size);
}

/* Sets ret to the name of a user. The user database is not asked again if the row before has the same
 * user. */
static void read_user(uint64_t uid, const struct session_row *before, char *ret, size_t size)
{
	const struct passwd *user;

	if (before && before->uid == uid) {
		snprintf(ret, size, "%s", before->user);
		return;
	}
	user = uid < UINT32_MAX ? getpwuid((uid_t)uid) : NULL;
	if (user)
		print_escaped(user->pw_name, strlen(user->pw_name), ret, size);
	else
		snprintf(ret, size, "%" PRIu64, uid);
}

static void row_init(struct session_row *row, const struct session_row *before, const tma_document *entry)
{
	const tma_document *latency = tma_document_find(entry, "latency");
	const char *cgroup = tma_document_text(tma_document_find(entry, "cgroup"));

	*row = (struct session_row){
		.session = field_uint(entry, "session"),
		.uid = field_uint(entry, "uid"),
		.pid = field_uint(entry, "pid"),
		.age_ms = field_uint(entry, "age_ms"),
		.requests = field_uint(entry, "requests"),
		.errors = field_uint(entry, "errors"),
		.bytes = field_uint(entry, "bytes"),
		.regions = field_uint(entry, "regions"),
		.mapped_bytes = field_uint(entry, "mapped_bytes"),
		.ns = field_uint(entry, "ns"),
		.multiprocessor_ns = field_uint(entry, "multiprocessor_ns"),
		.jobs = field_uint(entry, "jobs"),
	};
	for (size_t i = 0; i < LATENCY_BARS && i < tma_document_count(latency); i++)
		row->latency[i] = (uint64_t)tma_document_int(tma_document_at(latency, i, NULL));
	read_user(row->uid, before, row->user, sizeof row->user);
	read_name(row->pid, row->name, sizeof row->name);
	snprintf(row->cgroup, sizeof row->cgroup, "%s", cgroup ? cgroup : "");
}

/* Appends the sessions of a page, except those of this process. Sets *ret_last to the last session of the
 * page. */
static int add_page(struct session_list *list, const tma_document *page, uint64_t *ret_last)
{
	size_t n = tma_document_count(page);
	struct session_row *rows = realloc(list->rows, (list->n + n + 1) * sizeof *rows);

	if (!rows)
		return TMA_NO_MEMORY;
	list->rows = rows;
	for (size_t i = 0; i < n; i++) {
		struct session_row *row = &rows[list->n];

		row_init(row, list->n ? row - 1 : NULL, tma_document_at(page, i, NULL));
		*ret_last = row->session;
		if (row->pid != (uint64_t)getpid())
			list->n++;
	}
	return 0;
}

int session_list_get(struct session_list *ret, tma_client *client)
{
	tma_document *page = NULL;
	uint64_t after = 0, last;
	int rc;

	*ret = (struct session_list){ 0 };
	do {
		last = after;
		rc = tma_sessions(client, after, &page);
		if (!rc)
			rc = add_page(ret, page, &after);
		tma_document_free(page);
		page = NULL;
	} while (!rc && after > last);
	if (rc < 0)
		session_list_deinit(ret);
	return rc;
}

void session_list_deinit(struct session_list *list)
{
	free(list->rows);
	*list = (struct session_list){ 0 };
}

static int compare_sessions(const void *key, const void *row)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct session_row *)row)->session;

	return a < b ? -1 : a > b;
}

const struct session_row *session_list_find(const struct session_list *list, uint64_t session)
{
	return list->n ? bsearch(&session, list->rows, list->n, sizeof *list->rows, compare_sessions) : NULL;
}

void latency_read(const tma_document *buckets, uint64_t ret[LATENCY_BARS])
{
	memset(ret, 0, LATENCY_BARS * sizeof *ret);
	for (size_t i = 0; i < tma_document_count(buckets); i++) {
		const tma_document *bucket = tma_document_at(buckets, i, NULL);
		uint64_t below_ns = field_uint(bucket, "below_ns");
		int bar = 0;

		while (bar < LATENCY_BARS - 1 && (!below_ns || UINT64_C(1000) << bar < below_ns))
			bar++;
		ret[bar] += field_uint(bucket, "count");
	}
}

uint64_t latency_percentile(const uint64_t bars[LATENCY_BARS], double percent)
{
	uint64_t all = 0, seen = 0;

	for (int i = 0; i < LATENCY_BARS; i++)
		all += bars[i];
	for (int i = 0; all && i < LATENCY_BARS; i++) {
		seen += bars[i];
		if (bars[i] && (double)seen >= (double)all * percent / 100)
			return UINT64_C(1) << (i < LATENCY_BARS - 1 ? i : i - 1);
	}
	return 0;
}

const char *session_owner(const struct session_row *row, char *text, size_t size)
{
	const char *slash = strrchr(row->cgroup, '/'), *part;

	if (!slash)
		return row->user;
	part = slash[1] ? slash + 1 : slash;
	return print_escaped(part, strlen(part), text, size);
}

void session_print_owner_json(const struct session_row *row)
{
	printf("\"uid\": %" PRIu64 ", \"user\": ", row->uid);
	print_json_string(row->user, strlen(row->user), 0);
	printf(", \"pid\": %" PRIu64 ", \"name\": ", row->pid);
	print_json_string(row->name, strlen(row->name), 0);
	if (*row->cgroup) {
		printf(", \"cgroup\": ");
		print_json_string(row->cgroup, strlen(row->cgroup), 0);
	}
}
