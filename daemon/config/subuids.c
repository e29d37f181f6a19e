/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges are sorted by their first uid, so that a lookup is a binary search. */
#include "subuids.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "names.h"

#define MOST_STEPS 32 /* A lookup follows owners of owners this far. */

/* ---- Reading ------------------------------------------------------------------------------------------ */

struct reading {
	struct subuids *to;
	const char *path;
	size_t room;
	uint32_t line;
	uint32_t skipped;       /* So many lines are not understood. */
	uint32_t first_skipped; /* This line is the first of them. */
	char why[256];          /* It says why that line is not understood. */
	char name[64];          /* It was the last owner to be looked up. The next line often has it, too. */
	uint32_t id;
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

/* Empty lines and comments are allowed. */
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

/* Returns whether any ranges of different owners overlap. */
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
	fd = open(r.path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* It may be a pipe. */
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

/* Returns the first range in the file that has the uid, or NULL if none has. */
static const struct subuid_range *find(const struct subuids *subuids, uint32_t uid)
{
	const struct subuid_range *found = NULL;
	size_t low = 0, high = subuids->n; /* The ranges before low begin at uid or earlier. */

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
	const struct subuid_range *range = find(subuids, uid);

	return range ? range->owner : uid;
}

/* Owners that have each other in their ranges are one user, whose uid is the least of theirs. */
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
	const struct subuid_range *range = subuids ? find(subuids, uid) : NULL;

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
