/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LOOKUP_BYTES 65536 /* of an entry; a group with very many members is an error */
#define MOST_ID      (UINT32_MAX - 1)

/* A name may begin with a digit. */
static bool is_number(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

int id_parse(const char *text, uint32_t *ret, struct error *err)
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

int user_parse(const char *text, uint32_t *ret, struct error *err)
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
