/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of the counters, and their text in the formats of OpenMetrics and Prometheus. */
#include "exposition.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/loop/log.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"

/* ==== Snapshots ====================================================================================== */

/* A snapshot copies all counters, because they change while a text is being sent piece by piece. */

#define OTHERS "other"

/* Returns the row of the account's user, or the last row if the user has none. */
static struct snapshot_uid *row_of(struct snapshot *snapshot, const struct usages *usages,
                                   const struct account *account)
{
	for (uint32_t i = 0; i < usages->n; i++)
		if (usages->of[i] == account->usage)
			return &snapshot->uid[i];
	return &snapshot->uid[usages->n];
}

static void copy_limits(struct snapshot_uid *row, const struct accounts *accounts,
                        const struct account *account)
{
	struct limits *own = (struct limits *)account_limits(accounts, account);

	for (int i = 0; i < LIMIT_COUNT; i++)
		if (override_is_allowed(i) &&
		    *limits_at(own, i) != *limits_at((struct limits *)accounts->limits, i))
			row->limits[i] = *limits_at(own, i);
}

static void copy_uids(struct snapshot *snapshot, const struct accounts *accounts)
{
	const struct usages *usages = &accounts->usages;
	const struct account *account;

	for (uint32_t i = 0; i < usages->n; i++) {
		struct snapshot_uid *row = &snapshot->uid[i];

		row->usage = *usages->of[i];
		if (*usages->cgroup[i])
			snprintf(row->name, sizeof row->name, "cgroup:%s", usages->cgroup[i]);
		else
			snprintf(row->name, sizeof row->name, "%u", (unsigned)usages->uid[i]);
	}
	snapshot->n_uids = usages->n;
	if (usages->n == USAGE_UIDS) {
		snapshot->uid[usages->n].usage = usages->others;
		snprintf(snapshot->uid[usages->n].name, sizeof snapshot->uid[0].name, OTHERS);
		snapshot->n_uids++;
	}
	LIST_FOREACH(account, &accounts->list, entry) {
		struct snapshot_uid *row = row_of(snapshot, usages, account);

		for (int i = 0; i < CHARGE_KIND_COUNT; i++)
			if (row->levels[i] < account->used[i])
				row->levels[i] = account->used[i];
		if (row < &snapshot->uid[usages->n])
			copy_limits(row, accounts, account);
	}
}

static void copy_devices(struct snapshot *snapshot, const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->n; i++) {
		const struct served_device *device = &devices->of[i];
		struct snapshot_device *copy = &snapshot->devices[snapshot->n_devices];

		if (!*device->engine->uuid)
			continue;
		*copy = (struct snapshot_device){ .up = device_is_up(device),
			                          .transforms = device->transforms,
			                          .bytes = device->bytes,
			                          .ns = device->ns,
			                          .jobs = device->jobs,
			                          .regions = device->regions,
			                          .mapped_bytes = device->mapped_bytes };
		snprintf(copy->uuid, sizeof copy->uuid, "%s", device->engine->uuid);
		snapshot->n_devices++;
	}
}

/* Copies the bytes sent over links. If there are several devices, each has a UUID, so n_devices is
 * devices->n. */
static void copy_links(struct snapshot *snapshot, const struct devices *devices)
{
	const uint32_t n = snapshot->n_devices;

	if (n < 2)
		return;
	snapshot->links = (uint64_t *)(snapshot->devices + n);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < n; j++)
			snapshot->links[i * n + j] = devices->of[i].sent_bytes[j];
}

static uint64_t count_rings(const struct service *service)
{
	const struct session *session;
	uint64_t n = 0;

	TAILQ_FOREACH(session, &service->sessions, entry)
		n += session->submission != NULL;
	return n;
}

struct snapshot *snapshot_new(struct service *service)
{
	const uint32_t n = service->accounts.usages.n, n_devices = service->devices.n;
	struct snapshot *snapshot =
	    calloc(1, sizeof *snapshot + (n + 1) * sizeof snapshot->uid[0] +
	                  n_devices * (sizeof snapshot->devices[0] + n_devices * sizeof *snapshot->links));

	if (!snapshot)
		return NULL;
	snapshot->devices = (struct snapshot_device *)&snapshot->uid[n + 1];
	copy_devices(snapshot, &service->devices);
	copy_links(snapshot, &service->devices);
	snapshot->version = PACKAGE_VERSION;
	snapshot->engine = service_engine_name(service);
	service_describe(service, snapshot->device, sizeof snapshot->device);
	snapshot->start_ns = service->start_ns;
	snapshot->engine_up = service_is_up(service);
	snapshot->recoveries = service->recovery.count;
	snapshot->waiting = service_count_waiting(service);
	snapshot->stalled_users = service->stalls.users;
	snapshot->tables = service->n_tables;
	snapshot->rings = count_rings(service);
	snapshot->log_lost = log_lost();
	snapshot->regions = service->n_regions;
	snapshot->mapped_bytes = service->mapped_bytes;
	for (int i = 0; i < CHARGE_KIND_COUNT; i++)
		snapshot->levels[i] = service->accounts.total[i];
	snapshot->metrics = service->metrics;
	devices_plan_stats(&service->devices, &snapshot->plans);
	devices_cache_stats(&service->devices, &snapshot->maps);
	snapshot->limits = service->limits;
	copy_uids(snapshot, &service->accounts);
	return snapshot;
}

/* ==== The text ======================================================================================= */

/* The table of metric families. The shape of a family determines how many samples it has and which labels
 * they carry. */

#define LINE_MOST    1024 /* maximum number of bytes in a line, or in the header of a family */
#define NS_PER_S     UINT64_C(1000000000)
#define BARS_SAMPLES (LATENCY_BARS + 2) /* samples of a histogram: its buckets, the sum and the count */

enum shape {
	SHAPE_ONE,          /* one sample without labels */
	SHAPE_BUILD,        /* one sample of value 1 with version, engine and device */
	SHAPE_ENGINE,       /* one sample with engine and device */
	SHAPE_METHODS,      /* one sample for each method, and one for requests of no known method */
	SHAPE_STATUSES,     /* one sample for each status */
	SHAPE_PATHS,        /* one sample for each family of strategies (label path) */
	SHAPE_PATH_BARS,    /* a histogram for each family of strategies */
	SHAPE_LIMITS,       /* one sample for each limit */
	SHAPE_DEVICES,      /* one sample for each device */
	SHAPE_LINKS,        /* one sample for each ordered pair of devices */
	SHAPE_UID_ONE,      /* one sample for each user */
	SHAPE_UID_STATUSES, /* one sample for each user and status */
	SHAPE_UID_PATHS,    /* one sample for each user and family of strategies */
	SHAPE_UID_BARS,     /* a histogram for each user */
	SHAPE_UID_LIMITS,   /* one sample for each user and limit */
};

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM, TYPE_INFO };

/* A row of exposition.def. */
struct metric {
	enum shape shape;
	enum type type;
	const char *name; /* without the suffix of the type */
	const char *unit; /* "seconds", whose values are in ns, "bytes" or "" */
	size_t source;    /* offset of the first value in the struct that SOURCE_* of the shape names */
	const char *help;
};

#define SOURCE_ONE(field)          offsetof(struct snapshot, field)
#define SOURCE_BUILD(field)        offsetof(struct snapshot, field)
#define SOURCE_ENGINE(field)       offsetof(struct snapshot, field)
#define SOURCE_METHODS(field)      offsetof(struct snapshot, field)
#define SOURCE_STATUSES(field)     offsetof(struct snapshot, field)
#define SOURCE_PATHS(field)        offsetof(struct snapshot, field)
#define SOURCE_PATH_BARS(field)    offsetof(struct snapshot, field)
#define SOURCE_LIMITS(field)       offsetof(struct snapshot, field)
#define SOURCE_DEVICES(field)      offsetof(struct snapshot_device, field)
#define SOURCE_LINKS(field)        offsetof(struct snapshot, field)
#define SOURCE_UID_ONE(field)      offsetof(struct snapshot_uid, field)
#define SOURCE_UID_STATUSES(field) offsetof(struct snapshot_uid, field)
#define SOURCE_UID_PATHS(field)    offsetof(struct snapshot_uid, field)
#define SOURCE_UID_BARS(field)     offsetof(struct snapshot_uid, field)
#define SOURCE_UID_LIMITS(field)   offsetof(struct snapshot_uid, field)

static const struct metric metrics[] = {
#define METRIC(shape, type, name, unit, source, help) \
	{ SHAPE_##shape, TYPE_##type, name, unit, SOURCE_##shape(source), help },
#include "exposition.def"
};

#define METRIC_COUNT ((uint32_t)(sizeof metrics / sizeof metrics[0]))

/* ---- Text --------------------------------------------------------------------------------------------- */

/* A buffer that is being filled. */
struct text {
	char *at;
	size_t len;  /* bytes written */
	size_t size; /* bytes of the buffer */
};

/* Appends formatted text. There must be room for a line of LINE_MOST bytes; longer lines are truncated. */
__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
	size_t room = text->size - text->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->at + text->len, room, format, args);
	va_end(args);
	text->len += (size_t)n < room ? (size_t)n : room - 1;
}

static void put_value(struct text *text, const struct metric *metric, uint64_t value)
{
	if (!strcmp(metric->unit, "seconds"))
		put(text, " %" PRIu64 ".%09" PRIu64 "\n", value / NS_PER_S, value % NS_PER_S);
	else
		put(text, " %" PRIu64 "\n", value);
}

/* Appends a label. The value is escaped, because texts from a driver and paths of cgroups may contain any
 * character. */
static void put_label(struct text *text, const char *name, const char *value)
{
	put(text, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			put(text, "\\n");
		else if (*value == '"' || *value == '\\')
			put(text, "\\%c", *value);
		else
			put(text, "%c", *value);
	}
	put(text, "\"");
}

static const char *suffix(const struct metric *metric)
{
	return metric->type == TYPE_COUNTER ? "_total" : metric->type == TYPE_INFO ? "_info" : "";
}

/* ---- Samples ------------------------------------------------------------------------------------------ */

/* Returns the number of samples of the family. */
static uint32_t samples_of(const struct metric *metric, const struct snapshot *s)
{
	switch (metric->shape) {
	case SHAPE_ONE:
	case SHAPE_BUILD:
	case SHAPE_ENGINE:
		break;
	case SHAPE_METHODS:
		return METHOD_COUNT + 1;
	case SHAPE_STATUSES:
		return STATUS_COUNT;
	case SHAPE_PATHS:
		return FAMILY_COUNT;
	case SHAPE_PATH_BARS:
		return FAMILY_COUNT * BARS_SAMPLES;
	case SHAPE_LIMITS:
		return LIMIT_COUNT;
	case SHAPE_DEVICES:
		return s->n_devices;
	case SHAPE_LINKS:
		return s->links ? s->n_devices * s->n_devices : 0;
	case SHAPE_UID_ONE:
		return s->n_uids;
	case SHAPE_UID_STATUSES:
		return s->n_uids * STATUS_COUNT;
	case SHAPE_UID_PATHS:
		return s->n_uids * FAMILY_COUNT;
	case SHAPE_UID_BARS:
		return s->n_uids * BARS_SAMPLES;
	case SHAPE_UID_LIMITS:
		return s->n_uids * LIMIT_COUNT;
	}
	return 1;
}

static const uint64_t *numbers_at(const void *of, const struct metric *metric)
{
	return (const uint64_t *)((const char *)of + metric->source);
}

static void put_labelled(struct text *text, const struct metric *metric, const char *label, const char *value,
                         uint64_t number)
{
	put(text, "%s%s{", metric->name, suffix(metric));
	put_label(text, label, value);
	put(text, "}");
	put_value(text, metric, number);
}

/* Writes a sample of a user unless it is 0: most of these samples would be zeros. */
static void put_uid_labelled(struct text *text, const struct metric *metric, const struct snapshot_uid *uid,
                             const char *label, const char *value, uint64_t number)
{
	if (number == 0)
		return;
	put(text, "%s%s{", metric->name, suffix(metric));
	put_label(text, "uid", uid->name);
	put(text, ",%s=\"%s\"}", label, value);
	put_value(text, metric, number);
}

/* Writes sample k of a histogram: a bucket with the number of transforms up to its bound, then the sum, then
 * the count. */
static void put_bars(struct text *text, const struct metric *metric, const char *label, const char *value,
                     const uint64_t *bars, uint64_t sum_ns, uint32_t k)
{
	uint64_t count = usage_sum(bars, k < LATENCY_BARS ? (int)k + 1 : LATENCY_BARS);

	put(text, "%s_%s{", metric->name, k < LATENCY_BARS ? "bucket" : k == LATENCY_BARS ? "sum" : "count");
	put_label(text, label, value);
	if (k < LATENCY_BARS - 1)
		put(text, ",le=\"%.9g\"", (double)latency_bound((int)k) / (double)NS_PER_S);
	else if (k == LATENCY_BARS - 1)
		put(text, ",le=\"+Inf\"");
	if (k == LATENCY_BARS)
		put(text, "} %" PRIu64 ".%09" PRIu64 "\n", sum_ns / NS_PER_S, sum_ns % NS_PER_S);
	else
		put(text, "} %" PRIu64 "\n", count);
}

static void put_engine(struct text *text, const struct metric *metric, const struct snapshot *s)
{
	put(text, "%s%s{", metric->name, suffix(metric));
	if (metric->shape == SHAPE_BUILD) {
		put_label(text, "version", s->version);
		put(text, ",");
	}
	put_label(text, "engine", s->engine);
	put(text, ",");
	put_label(text, "device", s->device);
	put(text, "} %" PRIu64 "\n", metric->shape == SHAPE_BUILD ? 1 : *numbers_at(s, metric));
}

/* Writes the sample of method i; i = METHOD_COUNT stands for requests that were counted for no method. */
static void put_method(struct text *text, const struct metric *metric, const struct snapshot *s, uint32_t i)
{
	const uint64_t *by_method = numbers_at(s, metric);

	if (i < METHOD_COUNT)
		put_labelled(text, metric, "method", method_names[i], by_method[i]);
	else
		put_labelled(text, metric, "method", "refused",
		             s->metrics.requests - usage_sum(by_method, METHOD_COUNT));
}

/* Writes sample i of the links, unless the link has not been used. */
static void put_link(struct text *text, const struct metric *metric, const struct snapshot *s, uint32_t i)
{
	if (s->links[i] == 0)
		return;
	put(text, "%s%s{from=\"%s\",to=\"%s\"}", metric->name, suffix(metric),
	    s->devices[i / s->n_devices].uuid, s->devices[i % s->n_devices].uuid);
	put_value(text, metric, s->links[i]);
}

/* Writes sample i of the family. */
static void put_sample(struct text *text, const struct metric *metric, const struct snapshot *s, uint32_t i)
{
	const struct snapshot_uid *uid = s->uid;
	uint32_t k;

	switch (metric->shape) {
	case SHAPE_ONE:
		put(text, "%s%s", metric->name, suffix(metric));
		put_value(text, metric, *numbers_at(s, metric));
		break;
	case SHAPE_BUILD:
	case SHAPE_ENGINE:
		put_engine(text, metric, s);
		break;
	case SHAPE_METHODS:
		put_method(text, metric, s, i);
		break;
	case SHAPE_STATUSES:
		put_labelled(text, metric, "status", status_name(-(int)i - 1), numbers_at(s, metric)[i]);
		break;
	case SHAPE_PATHS:
		put_labelled(text, metric, "path", family_names[i], numbers_at(s, metric)[i]);
		break;
	case SHAPE_PATH_BARS:
		k = i / BARS_SAMPLES;
		put_bars(text, metric, "path", family_names[k], numbers_at(s, metric) + k * LATENCY_BARS,
		         s->metrics.latency_ns[k], i % BARS_SAMPLES);
		break;
	case SHAPE_LIMITS:
		put_labelled(text, metric, "name", limit_infos[i].name, numbers_at(s, metric)[i]);
		break;
	case SHAPE_DEVICES:
		put_labelled(text, metric, "device", s->devices[i].uuid, *numbers_at(&s->devices[i], metric));
		break;
	case SHAPE_LINKS:
		put_link(text, metric, s, i);
		break;
	case SHAPE_UID_ONE:
		put_labelled(text, metric, "uid", uid[i].name, *numbers_at(&uid[i], metric));
		break;
	case SHAPE_UID_STATUSES:
		uid += i / STATUS_COUNT;
		k = i % STATUS_COUNT;
		put_uid_labelled(text, metric, uid, "status", status_name(-(int)k - 1),
		                 numbers_at(uid, metric)[k]);
		break;
	case SHAPE_UID_PATHS:
		uid += i / FAMILY_COUNT;
		k = i % FAMILY_COUNT;
		put_uid_labelled(text, metric, uid, "path", family_names[k], numbers_at(uid, metric)[k]);
		break;
	case SHAPE_UID_BARS:
		uid += i / BARS_SAMPLES;
		put_bars(text, metric, "uid", uid->name, numbers_at(uid, metric), uid->usage.latency_ns,
		         i % BARS_SAMPLES);
		break;
	case SHAPE_UID_LIMITS:
		uid += i / LIMIT_COUNT;
		k = i % LIMIT_COUNT;
		put_uid_labelled(text, metric, uid, "name", limit_infos[k].name, numbers_at(uid, metric)[k]);
		break;
	}
}

/* ---- Families ----------------------------------------------------------------------------------------- */

/* Writes the header of a family. In OpenMetrics the name of a family lacks the suffix of its type, and there
 * is a type for info, which the text format of Prometheus writes as a gauge. */
static void put_header(struct text *text, const struct metric *metric, bool openmetrics)
{
	static const char *const types[] = { "counter", "gauge", "histogram", "info" };
	const char *end = openmetrics ? "" : suffix(metric);
	bool is_gauge = !openmetrics && metric->type == TYPE_INFO;

	put(text, "# HELP %s%s %s\n", metric->name, end, metric->help);
	put(text, "# TYPE %s%s %s\n", metric->name, end, is_gauge ? "gauge" : types[metric->type]);
	if (openmetrics && *metric->unit)
		put(text, "# UNIT %s %s\n", metric->name, metric->unit);
}

size_t exposition_write(struct exposition *e, char *at, size_t size)
{
	struct text text = { .at = at, .size = size };

	for (; e->family < METRIC_COUNT; e->family++) {
		const struct metric *metric = &metrics[e->family];
		uint32_t n = samples_of(metric, e->snapshot);

		for (; e->sample <= n; e->sample++) {
			if (size - text.len < LINE_MOST)
				return text.len;
			if (e->sample == 0)
				put_header(&text, metric, e->openmetrics);
			else
				put_sample(&text, metric, e->snapshot, e->sample - 1);
		}
		e->sample = 0;
	}
	if (e->family == METRIC_COUNT && size - text.len >= LINE_MOST) {
		if (e->openmetrics)
			put(&text, "# EOF\n");
		e->family++;
	}
	return text.len;
}

const char *exposition_type(bool openmetrics)
{
	return openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
	                   : "text/plain; version=0.0.4; charset=utf-8";
}
