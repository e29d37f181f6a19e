/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of limits for single users, groups and cgroups, lookups of users and groups by name, and
 * subordinate uids. */
#include "overrides.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int id_parse(const char *text, uint32_t *ret, struct error *err);
static int user_parse(const char *text, uint32_t *ret, struct error *err);

bool override_is_allowed(int limit)
{
	static const char end[] = "_per_uid";
	if (limit == LIMIT_INDEX_multiprocessors || limit == LIMIT_INDEX_host_threads)
		return true;
	size_t len = strlen(limit_infos[limit].name), n = strlen(end);

	return len > n && !strcmp(limit_infos[limit].name + len - n, end);
}

/* ---- Whose -------------------------------------------------------------------------------------------- */

/* Accepts only the form in which the kernel writes the path of a cgroup, so that paths can be compared as
 * strings, and copies it to ret. */
static int cgroup_parse(const char *path, char ret[OVERRIDE_CGROUP_BYTES], struct error *err)
{
	bool is_path = *path == '/' && strlen(path) < OVERRIDE_CGROUP_BYTES;

	for (const char *part = path; is_path && path[1] && part; part = strchr(part + 1, '/')) {
		size_t len = strcspn(part + 1, "/");

		is_path = len > 0 && !(len <= 2 && strspn(part + 1, ".") >= len);
	}
	if (!is_path)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "a cgroup's path begins with /, ends without one, has no part that is empty, . "
		    "or .., and has at most %d bytes",
		    OVERRIDE_CGROUP_BYTES - 1);
	strcpy(ret, path);
	return 0;
}

int override_parse(const char *text, struct override *ret, struct error *err)
{
	static const struct {
		const char *prefix;
		enum override_kind kind;
		int (*parse)(const char *text, uint32_t *ret, struct error *err);
	} kinds[] = {
		{ "uid:", OVERRIDE_UID, id_parse },   { "user:", OVERRIDE_UID, user_parse },
		{ "gid:", OVERRIDE_GID, id_parse },   { "group:", OVERRIDE_GID, group_parse },
		{ "cgroup:", OVERRIDE_CGROUP, NULL },
	};

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		const char *who = text + strlen(kinds[i].prefix);

		if (strncmp(text, kinds[i].prefix, strlen(kinds[i].prefix)) != 0)
			continue;
		*ret = (struct override){ .kind = kinds[i].kind };
		return kinds[i].parse ? kinds[i].parse(who, &ret->id, err)
		                      : cgroup_parse(who, ret->cgroup, err);
	}
	return error_set(
	    err, STATUS_INVALID_ARGUMENT,
	    "the user, group or cgroup is written as uid:NUMBER, user:NAME, gid:NUMBER, group:NAME "
	    "or cgroup:PATH");
}

bool override_is_like(const struct override *override, const struct override *other)
{
	return override->kind == other->kind && override->id == other->id &&
	       !strcmp(override->cgroup, other->cgroup);
}

struct override *overrides_get(struct overrides *overrides, const struct override *like)
{
	for (uint32_t i = 0; i < overrides->n; i++)
		if (override_is_like(&overrides->of[i], like))
			return &overrides->of[i];
	if (overrides->n == OVERRIDES_MOST)
		return NULL;
	overrides->of[overrides->n] = *like;
	return &overrides->of[overrides->n++];
}

void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES])
{
	if (override->kind == OVERRIDE_CGROUP)
		snprintf(name, OVERRIDE_NAME_BYTES, "cgroup %s", override->cgroup);
	else
		snprintf(name, OVERRIDE_NAME_BYTES, "%s %" PRIu32,
		         override->kind == OVERRIDE_GID ? "gid" : "uid", override->id);
}

/* ---- Which -------------------------------------------------------------------------------------------- */

static uint64_t find(const struct overrides *overrides, enum override_kind kind, uint32_t id,
                     const char *cgroup)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++) {
		const struct override *o = &overrides->of[i];

		if (o->kind == kind && o->id == id && !strcmp(o->cgroup, cgroup))
			return UINT64_C(1) << i;
	}
	return 0;
}

uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid)
{
	return find(overrides, OVERRIDE_UID, uid, "");
}

uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n)
{
	uint64_t set = 0;

	for (size_t i = 0; i < n; i++)
		set |= find(overrides, OVERRIDE_GID, groups[i], "");
	return set;
}

uint64_t overrides_of_cgroup(const struct overrides *overrides, const char *cgroup)
{
	return find(overrides, OVERRIDE_CGROUP, 0, cgroup);
}

bool overrides_have(const struct overrides *overrides, enum override_kind kind)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++)
		if (overrides->of[i].kind == kind)
			return true;
	return false;
}

/* Returns whether the cgroup at path is the one at top or one of its descendants. */
static bool is_within(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strcmp(top, "/") || (!strncmp(path, top, len) && (path[len] == '/' || path[len] == '\0'));
}

const char *overrides_find_cgroup(const struct overrides *overrides, const char *path)
{
	const char *longest = NULL;

	for (uint32_t i = 0; overrides && i < overrides->n; i++) {
		const struct override *o = &overrides->of[i];

		if (o->kind == OVERRIDE_CGROUP && is_within(path, o->cgroup) &&
		    (!longest || strlen(o->cgroup) > strlen(longest)))
			longest = o->cgroup;
	}
	return longest;
}

/* ---- What --------------------------------------------------------------------------------------------- */

static uint64_t value_of(const struct overrides *overrides, uint64_t set, int limit)
{
	uint64_t of_groups = 0;

	for (uint32_t i = 0; i < overrides->n; i++) {
		uint64_t value = overrides->of[i].value[limit];

		if (!(set >> i & 1) || value == 0)
			continue;
		if (overrides->of[i].kind != OVERRIDE_GID)
			return value;
		if (value > of_groups)
			of_groups = value;
	}
	return of_groups;
}

void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits)
{
	for (int i = 0; i < LIMIT_COUNT; i++) {
		uint64_t value = value_of(overrides, set, i);

		if (value)
			*limits_at(limits, i) = value;
	}
	limits_fit(limits, NULL);
}

/* ==== Names ========================================================================================== */

#define LOOKUP_BYTES 65536 /* maximum size of an entry; a group with too many members cannot be looked up */
#define MOST_ID      (UINT32_MAX - 1)

/* Returns whether text consists of digits only; a name may begin with a digit. */
static bool is_number(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

/* Parses a uid or gid. Accepts digits only, without a sign. */
static int id_parse(const char *text, uint32_t *ret, struct error *err)
{
	unsigned long long id;
	char *end;

	errno = 0;
	id = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || id > MOST_ID)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s is not a number from 0 to %" PRIu32, text,
		                 MOST_ID);
	*ret = (uint32_t)id;
	return 0;
}

static int user_parse(const char *text, uint32_t *ret, struct error *err)
{
	struct passwd entry, *found = NULL;
	char *room;
	int r;

	if (is_number(text))
		return id_parse(text, ret, err);
	room = malloc(LOOKUP_BYTES);
	r = room ? getpwnam_r(text, &entry, room, LOOKUP_BYTES, &found) : ENOMEM;
	if (found)
		*ret = entry.pw_uid;
	free(room);
	if (!found && r && r != ENOENT)
		return error_set(err, STATUS_INVALID_ARGUMENT, "user %s cannot be looked up: %s", text,
		                 strerror(r));
	return found ? 0 : error_set(err, STATUS_INVALID_ARGUMENT, "there is no user %s", text);
}

int group_parse(const char *text, uint32_t *ret, struct error *err)
{
	struct group entry, *found = NULL;
	char *room;
	int r;

	if (is_number(text))
		return id_parse(text, ret, err);
	room = malloc(LOOKUP_BYTES);
	r = room ? getgrnam_r(text, &entry, room, LOOKUP_BYTES, &found) : ENOMEM;
	if (found)
		*ret = entry.gr_gid;
	free(room);
	if (!found && r && r != ENOENT)
		return error_set(err, STATUS_INVALID_ARGUMENT, "group %s cannot be looked up: %s", text,
		                 strerror(r));
	return found ? 0 : error_set(err, STATUS_INVALID_ARGUMENT, "there is no group %s", text);
}

/* ==== Subordinate uids =============================================================================== */

/* Ranges are sorted by their first uid, so that a lookup is a binary search. */

#define MOST_STEPS 32 /* maximum number of steps from an owner to its own owner */

/* ---- Reading ------------------------------------------------------------------------------------------ */

/* The state of the parser of the file of subordinate uids. */
struct reading {
	struct subuids *to;
	const char *path;
	size_t room;            /* allocated elements of to->of */
	uint32_t line;          /* number of the current line */
	uint32_t skipped;       /* number of lines that could not be parsed */
	uint32_t first_skipped; /* number of the first of them */
	char why[256];          /* the reason why that line could not be parsed */
	char name[64];          /* last owner that was looked up; the next line often has the same */
	uint32_t id;            /* uid of that owner */
};

static int parse_owner(struct reading *r, const char *text, uint32_t *ret, struct error *err)
{
	if (!*text)
		return error_set(err, STATUS_INVALID_ARGUMENT, "the owner is missing");
	if (*r->name && !strcmp(r->name, text)) {
		*ret = r->id;
		return 0;
	}
	if (user_parse(text, ret, err) < 0)
		return err->status;
	if (strlen(text) < sizeof r->name) {
		strcpy(r->name, text);
		r->id = *ret;
	}
	return 0;
}

static int parse_count(const char *text, uint32_t first, uint32_t *ret_last, struct error *err)
{
	unsigned long long count;
	char *end;

	errno = 0;
	count = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || count < 1 || count > UINT32_MAX - (uint64_t)first)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s is not a number of uids from %" PRIu32 " on", text, first);
	*ret_last = first + (uint32_t)(count - 1);
	return 0;
}

static int parse_range(struct reading *r, char *text, struct subuid_range *ret, struct error *err)
{
	char *first = strchr(text, ':'), *count = first ? strchr(first + 1, ':') : NULL;
	int rc;

	if (!count || strchr(count + 1, ':'))
		return error_set(err, STATUS_INVALID_ARGUMENT, "it is not OWNER:FIRST:COUNT");
	*first++ = *count++ = '\0';
	*ret = (struct subuid_range){ .line = r->line };
	rc = id_parse(first, &ret->first, err);
	if (rc == 0)
		rc = parse_count(count, ret->first, &ret->last, err);
	return rc < 0 ? rc : parse_owner(r, text, &ret->owner, err);
}

static int add(struct reading *r, const struct subuid_range *range, struct error *err)
{
	struct subuids *to = r->to;

	if (to->n == r->room) {
		const size_t room = r->room ? 2 * r->room : 64;
		struct subuid_range *grown = realloc(to->of, room * sizeof *grown);

		if (!grown)
			return error_set(err, STATUS_NO_MEMORY, "no memory for it");
		to->of = grown;
		r->room = room;
	}
	to->of[to->n++] = *range;
	return 0;
}

/* Parses one line. Skips empty lines and comments, and counts lines that cannot be parsed. */
static void take_line(struct reading *r, char *text, size_t len)
{
	struct subuid_range range;
	struct error err;

	r->line++;
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		text[--len] = '\0';
	text += strspn(text, " \t");
	if (!*text || *text == '#')
		return;
	if (parse_range(r, text, &range, &err) == 0 && add(r, &range, &err) == 0)
		return;
	if (r->skipped++ > 0)
		return;
	r->first_skipped = r->line;
	snprintf(r->why, sizeof r->why, "%s", err.message);
}

static int by_first(const void *a, const void *b)
{
	const struct subuid_range *one = a, *other = b;

	if (one->first != other->first)
		return one->first < other->first ? -1 : 1;
	return one->line < other->line ? -1 : one->line > other->line;
}

/* Sorts the ranges and sets their `before`. Returns whether ranges of different owners overlap. */
static bool sort(struct subuids *subuids)
{
	const struct subuid_range *longest = subuids->of;
	bool overlap = false;

	if (subuids->n == 0)
		return false;
	qsort(subuids->of, subuids->n, sizeof *subuids->of, by_first);
	for (size_t i = 0; i < subuids->n; i++) {
		struct subuid_range *range = &subuids->of[i];

		overlap |= i > 0 && range->first <= longest->last && range->owner != longest->owner;
		if (range->last > longest->last)
			longest = range;
		range->before = longest->last;
	}
	return overlap;
}

__attribute__((format(printf, 2, 3))) static void subuids_warn(struct reading *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->to->warning, sizeof r->to->warning, format, args);
	va_end(args);
}

static void take_file(struct reading *r, FILE *file)
{
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	bool overlap;

	while ((len = getline(&text, &room, file)) > 0)
		take_line(r, text, (size_t)len);
	free(text);
	overlap = sort(r->to);
	if (r->skipped > 0)
		subuids_warn(r, "%s:%" PRIu32 ": %s; the line is ignored%s", r->path, r->first_skipped,
		             r->why, r->skipped > 1 ? ", as are others" : "");
	else if (!feof(file))
		subuids_warn(r, "%s: it cannot be read to its end", r->path);
	else if (overlap)
		subuids_warn(
		    r,
		    "%s: ranges of several owners overlap; a uid in several of them is charged to the owner of the "
		    "first in the file",
		    r->path);
}

void subuids_read(struct subuids *ret, const char *path)
{
	struct reading r = { .to = ret, .path = path ? path : SUBUID_FILE };
	struct stat about;
	FILE *file = NULL;
	int fd;

	*ret = (struct subuids){ 0 };
	if (!*r.path)
		return;
	fd = open(r.path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* never waits for a pipe */
	if (fd < 0) {
		if (path || errno != ENOENT)
			subuids_warn(&r, "%s: %s; each uid is a user of its own", r.path, strerror(errno));
		return;
	}
	if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode))
		subuids_warn(&r, "%s: it is not a regular file; each uid is a user of its own", r.path);
	else if (!(file = fdopen(fd, "r")))
		subuids_warn(&r, "%s: %s; each uid is a user of its own", r.path, strerror(errno));
	if (!file) {
		close(fd);
		return;
	}
	take_file(&r, file);
	fclose(file);
}

void subuids_deinit(struct subuids *subuids)
{
	free(subuids->of);
	*subuids = (struct subuids){ 0 };
}

/* ---- Lookups ------------------------------------------------------------------------------------------ */

/* Returns the first range in the file that contains the uid, or NULL if none does. */
static const struct subuid_range *find_range(const struct subuids *subuids, uint32_t uid)
{
	const struct subuid_range *found = NULL;
	size_t low = 0, high = subuids->n; /* ranges before low begin at uid or earlier */

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (subuids->of[middle].first <= uid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low > 0 && subuids->of[low - 1].before >= uid; low--) {
		const struct subuid_range *range = &subuids->of[low - 1];

		if (range->last >= uid && (!found || range->line < found->line))
			found = range;
	}
	return found;
}

static uint32_t owner_of(const struct subuids *subuids, uint32_t uid)
{
	const struct subuid_range *range = find_range(subuids, uid);

	return range ? range->owner : uid;
}

/* If owners are in each other's ranges, they are one user, whose uid is the lowest of theirs. */
uid_t subuids_user(const struct subuids *subuids, uid_t uid)
{
	uint32_t user = uid, owner, least;

	if (!subuids || subuids->n == 0)
		return uid;
	for (int i = 0; i < MOST_STEPS; i++) {
		owner = owner_of(subuids, user);
		if (owner == user)
			return user;
		user = owner;
	}
	least = user;
	for (int i = 0; i < MOST_STEPS; i++) {
		user = owner_of(subuids, user);
		least = user < least ? user : least;
	}
	return least;
}

uid_t subuids_first(const struct subuids *subuids, uid_t uid)
{
	const struct subuid_range *range = subuids ? find_range(subuids, uid) : NULL;

	return range ? range->first : uid;
}

bool subuids_equal(const struct subuids *a, const struct subuids *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		const struct subuid_range *one = &a->of[i], *other = &b->of[i];

		if (one->first != other->first || one->last != other->last || one->owner != other->owner ||
		    one->line != other->line)
			return false;
	}
	return true;
}
