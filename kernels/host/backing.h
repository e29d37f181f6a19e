/* SPDX-License-Identifier: Apache-2.0 */
/* The file behind a region's host memory, where something can happen to it: a client can cut it short, unless
 * it is sealed against shrinking, while a request is under way.
 *
 * What touches memory that has gone gets SIGBUS (fault.h). That does not tell of a file that was cut within
 * its last page, nor of pages that a device has pinned: it keeps them, and moves bytes of nobody's file from
 * then on, also when the file has its old size again. So the file stays open, and is looked at when a job
 * that used it ends. Pinned memory that was cut is lost: only another registration pins the file's pages.
 */
#ifndef KERNELS_HOST_BACKING_H
#define KERNELS_HOST_BACKING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fault.h"
#include "kernels/engine.h"

struct backing {
	int fd;       /* owned; -1: the file cannot shrink */
	uint64_t end; /* of the region, in the file */
	/* Of memory that a device pins. One thread at a time looks at it. */
	bool is_pinned;
	atomic_bool is_lost;
	struct fault_cover cover;
	struct fault_range
	    last; /* the region's last page, mapped once more, and touched by nobody; or size 0 */
	struct timespec changed;     /* the file's time of change, as it was seen */
	bool is_settled;             /* a change after that has another time */
	atomic_uint_fast64_t looked; /* the number of the check that looked last, and in bit 0 what it saw */
};

/* Has a descriptor of its own of a file that can shrink; fd is -1 otherwise. */
int backing_new(int fd, uint64_t end, struct backing **ret, struct error *err);

/* NULL is allowed. */
void backing_free(struct backing *backing);

/* Before the memory is pinned: a mapping of the file, of pages of so many bytes. */
void backing_pin(struct backing *backing, struct fault_range mapped, size_t page);

/* Once it is not pinned any more. */
void backing_unpin(struct backing *backing);

/* Whether all of the region is the file's, and has been for as long as it has been pinned. Does not block. */
bool backing_is_whole(struct backing *backing);

/* Whether any of the job's memory has a backing. */
bool backing_concerns(const struct engine_job *job);

/* Ends as DEVICE what was moved in memory that is not whole: a job that would end with status 0, or moves of
 * a batch. */
void backing_check(struct engine_job *job);

#endif
