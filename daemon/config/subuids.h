/* SPDX-License-Identifier: Apache-2.0 */
/* A user who may run processes as many subordinate uids (newuidmap) is one user all the same.
 *
 * The ranges and their owners come from a file such as /etc/subuid (subuid(5)), whose lines are
 * OWNER:FIRST:COUNT. It is read when the settings are; a lookup asks neither the file nor the names of users
 * again. It is no error if the file cannot be read or some of its lines are not understood: there are fewer
 * ranges then, and a warning says so.
 */
#ifndef DAEMON_CONFIG_SUBUIDS_H
#define DAEMON_CONFIG_SUBUIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUBUID_FILE          "/etc/subuid"
#define SUBUID_WARNING_BYTES 512

/* A range has the uids from first to last, both included. */
struct subuid_range {
	uint32_t first, last;
	uint32_t owner;
	uint32_t before; /* This is the greatest `last` of the ranges up to this one, which may overlap. */
	uint32_t line;   /* It stands in this line. Where ranges overlap, the first in the file counts. */
};

/* There are none in a zero-initialised one. */
struct subuids {
	struct subuid_range *of; /* They are sorted by `first`. */
	size_t n;
	char warning[SUBUID_WARNING_BYTES]; /* It is "" if there is nothing to say. */
};

/* Reads the file. A path of NULL stands for SUBUID_FILE, which may be missing; one of "" stands for no file.
 * This looks names up, and blocks. */
void subuids_read(struct subuids *ret, const char *path);
void subuids_deinit(struct subuids *subuids);

/* Returns the user that the uid belongs to: the owner of the range that it is in, or, if that one is in a
 * range itself, the owner of that, and so on; otherwise the uid itself. NULL has no ranges. */
uid_t subuids_user(const struct subuids *subuids, uid_t uid);

/* Returns the first uid of the range that the uid is in, or the uid itself if it is in none. */
uid_t subuids_first(const struct subuids *subuids, uid_t uid);

bool subuids_equal(const struct subuids *a, const struct subuids *b);

#endif
