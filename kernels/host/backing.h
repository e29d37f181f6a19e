/* SPDX-License-Identifier: Apache-2.0 */
/* A backing watches the file behind a region's host memory, if something can happen to it: a client can cut
 * it short, unless it is sealed against shrinking, or punch holes in it, while a request is under way.
 *
 * What touches memory that has gone gets SIGBUS (fault.h). That does not tell of a file that was cut within
 * its last page, nor of pages that a device has pinned: it keeps them, and moves bytes of nobody's file from
 * then on, also when the file has its old size again. So the file stays open, and is looked at when a job
 * that used it ends. Pinned memory that was cut is lost: only another registration pins the file's pages.
 *
 * Holes in clients' files are not ours to fill. A thread that touches a page which a file lacks makes it, and
 * its process pays for it with its cgroup for as long as the file lives: longer than a region. In a watched
 * mapping such an access gets SIGBUS instead (userfaultfd), by which the guard of fault.h ends one job; and
 * no page, however large, is zeroed under a copy. Where the kernel refuses userfaultfd, a file is checked
 * only once, and a hole that is punched later is not noticed.
 */
#ifndef KERNELS_HOST_BACKING_H
#define KERNELS_HOST_BACKING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "fault.h"
#include "kernels/engine.h"

/* ---- Holes --------------------------------------------------------------------------------------------- */

/* Tells if the page at the address of a mapping is present. If the kernel does not tell, every page counts as
 * present. */
bool holes_is_mapped(const void *address);

/* Calls are counted: the first holes_init opens what the kernel has for it, and the last holes_deinit closes
 * it. */
void holes_init(void);
void holes_deinit(void);

/* Tells if mappings can be watched. */
bool holes_can_watch(void);

/* Watches a mapping of whole pages of its file, of which nothing may be present yet that the file lacks.
 * Returns 0, or a negative errno. */
int holes_watch(void *start, size_t size);

/* Ends the watch: from then on access makes pages again. */
void holes_unwatch(void *start, size_t size);

/* Sets *ret to the first byte of [start, end) that the file does not have. For a hugetlb file, which tells
 * only that it has holes, that is start. Returns false if there is none. The descriptor's position stays as
 * it is. */
bool holes_find(int fd, uint64_t start, uint64_t end, uint64_t *ret);

/* Returns the bytes of a page of a hugetlb file, or 0 if it is none. */
uint64_t holes_page_bytes(int fd);

/* ---- Backings ------------------------------------------------------------------------------------------ */

struct backing {
	int fd;       /* owned; -1: the file cannot shrink */
	uint64_t end; /* end of the region in the file, in bytes */
	/* The rest concerns memory that a device pins. One thread at a time looks at it. */
	bool is_pinned;
	atomic_bool is_lost;
	struct fault_cover cover;
	struct fault_range
	    last; /* the region's last page, mapped once more, and touched by nobody; or size 0 */
	struct timespec changed;     /* the file's time of change, as it was seen */
	bool is_settled;             /* any later change of the file has another time of change */
	atomic_uint_fast64_t looked; /* the number of the check that looked last, and in bit 0 what it saw */
};

/* Makes a backing, with a descriptor of its own of a file that can shrink; fd is -1 otherwise. */
int backing_new(int fd, uint64_t end, struct backing **ret, struct error *err);

/* NULL is allowed. */
void backing_free(struct backing *backing);

/* Must be called before the memory is pinned. mapped is a mapping of the file, with pages of `page` bytes. */
void backing_pin(struct backing *backing, struct fault_range mapped, size_t page);

/* Must be called once it is not pinned any more. */
void backing_unpin(struct backing *backing);

/* Tells if all of the region is the file's, and has been for as long as it has been pinned. Does not block.
 */
bool backing_is_whole(struct backing *backing);

/* Tells if any of the job's memory has a backing. */
bool backing_concerns(const struct engine_job *job);

/* Sets the status DEVICE for what was moved in memory that is not whole: for a job that would end with status
 * 0, or for moves of a batch. */
void backing_check(struct engine_job *job);

/* ---- All memory of a job ------------------------------------------------------------------------------- */

/* These functions call a test for the memory that a job touches until one holds, and tell if one does. They
 * are inline because every job is tested, so that the test becomes part of them. NULL memory is passed over.
 */
typedef bool memory_test(struct engine_memory *memory, void *arg);

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE bool memory_is(struct engine_memory *memory, memory_test *test, void *arg)
{
	return memory && test(memory, arg);
}

ALWAYS_INLINE bool move_any_memory(const struct engine_move *move, memory_test *test, void *arg)
{
	return memory_is(move->dst, test, arg) || memory_is(move->src, test, arg) ||
	       memory_is(move->scale.memory, test, arg) || memory_is(move->bias.memory, test, arg) ||
	       memory_is(move->amax_scale.memory, test, arg) ||
	       memory_is(move->amax_inverse.memory, test, arg);
}

static inline bool table_any_memory(const struct layer_table *table, memory_test *test, void *arg)
{
	for (uint32_t i = 0; table && i < table->n; i++)
		if (test(table->memories[i], arg))
			return true;
	return false;
}

static inline bool blocks_any_memory(const struct engine_blocks *blocks, memory_test *test, void *arg)
{
	return memory_is(blocks->index_memory, test, arg) || table_any_memory(blocks->dst.table, test, arg) ||
	       table_any_memory(blocks->src.table, test, arg);
}

/* Tests all memory that the job touches, except the word that it waits for. */
ALWAYS_INLINE bool job_any_memory(const struct engine_job *job, memory_test *test, void *arg)
{
	if (memory_is(job->signal.memory, test, arg))
		return true;
	if (!job->moves)
		return move_any_memory(&job->move, test, arg) ||
		       (job->blocks && blocks_any_memory(job->blocks, test, arg));
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (move_any_memory(&job->moves[i], test, arg))
			return true;
	return false;
}

#endif
