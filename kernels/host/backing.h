/* SPDX-License-Identifier: Apache-2.0 */
/* A backing watches the file behind a region's host memory if something can happen to that file: a client can
 * shrink it, unless it is sealed against that, or punch holes in it, while a request is under way.
 *
 * Access to memory that has gone raises SIGBUS (fault.h). That does not reveal a file that was cut within its
 * last page, nor pages that a device has pinned: the device keeps them and from then on moves bytes that
 * belong to no file, even if the file grows to its old size again. The file is therefore kept open and
 * checked whenever a job that used it ends. Pinned memory whose file was cut is lost: only another
 * registration pins the file's new pages.
 *
 * The service must not fill holes in clients' files. A thread that touches a page that a file lacks allocates
 * it, and the page is charged to the cgroup of the thread's process for as long as the file lives, which is
 * longer than a region. In a watched mapping such an access raises SIGBUS instead (userfaultfd), so that the
 * guard of fault.h ends the one job that made it, and no page, however large, is zeroed in the middle of a
 * copy. Where the kernel refuses userfaultfd, a file is checked only once, and a hole that is punched later
 * goes unnoticed.
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

/* Returns whether the page at an address of a mapping is present. If the kernel does not reveal that, every
 * page counts as present. */
bool holes_is_mapped(const void *address);

/* holes_init opens what holes_watch and holes_is_mapped need from the kernel, and holes_deinit closes it.
 * Calls are counted: only the first holes_init and the last holes_deinit have an effect. */
void holes_init(void);
void holes_deinit(void);

/* Returns whether mappings can be watched. */
bool holes_can_watch(void);

/* Watches a mapping of whole pages: from then on access to a hole raises SIGBUS. Returns 0 or a negative
 * errno. */
int holes_watch(void *start, size_t size);

/* Ends the watch: from then on access to a hole allocates pages again. */
void holes_unwatch(void *start, size_t size);

/* Sets *ret to the first byte of [start, end) that the file does not have. For a hugetlb file, which reveals
 * only that it has holes somewhere, sets *ret to start. Returns false if there is no hole. The descriptor's
 * position does not change. */
bool holes_find(int fd, uint64_t start, uint64_t end, uint64_t *ret);

/* Returns the bytes of a page of a hugetlb file, or 0 if the file is not one. */
uint64_t holes_page_bytes(int fd);

/* ---- Backings ------------------------------------------------------------------------------------------ */

struct backing {
	int fd;       /* descriptor of the file, owned; -1: the file cannot shrink */
	uint64_t end; /* bytes from the file's start to the end of the region */
	/* The rest is used for memory that a device pins, by one thread at a time. */
	bool is_pinned;
	atomic_bool is_lost;
	struct fault_cover cover;
	/* A second mapping of the region's last page, which nobody touches. size == 0: not mapped. */
	struct fault_range last;
	struct timespec changed; /* the file's ctime when it was last checked */
	bool is_settled;         /* any later change of the file will have another ctime than `changed` */
	/* Number of the job check that looked at this backing last, with bit 0 set if it was whole. */
	atomic_uint_fast64_t looked;
};

/* Makes a backing for a file in which the region ends at byte `end`. The backing gets a descriptor of its
 * own. fd must be -1 if the file cannot shrink. */
int backing_new(int fd, uint64_t end, struct backing **ret, struct error *err);

/* Frees a backing, which is unpinned first. backing may be NULL. */
void backing_free(struct backing *backing);

/* Must be called before the memory is pinned. mapped is the mapping of the file, page its page size in
 * bytes. */
void backing_pin(struct backing *backing, struct fault_range mapped, size_t page);

/* Must be called once the memory is not pinned any more. */
void backing_unpin(struct backing *backing);

/* Returns whether all of the region lies within the file, and has done so for as long as it has been pinned.
 * Does not block. */
bool backing_is_whole(struct backing *backing);

/* Returns whether any memory of the job has a backing. */
bool backing_concerns(const struct engine_job *job);

/* Sets the status DEVICE if memory is not whole any more: of a job that would otherwise end with status 0,
 * or, in a batch, of each such move. */
void backing_check(struct engine_job *job);

/* ---- All memory of a job ------------------------------------------------------------------------------- */

/* The functions below call a test for each memory that a job touches until one returns true, and return
 * whether one did. They are inline because they run for every job, so that the test is compiled into them.
 * Memory that is NULL is skipped. */
typedef bool memory_test(struct engine_memory *memory, void *arg);

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE bool memory_is(struct engine_memory *memory, memory_test *test, void *arg)
{
	return memory && test(memory, arg);
}

ALWAYS_INLINE bool move_any_memory(const struct engine_move *move, memory_test *test, void *arg)
{
	bool is = memory_is(move->dst, test, arg) || memory_is(move->src, test, arg);

	for (int i = 0; i < ROLE_COUNT && !is; i++)
		is = memory_is(move->operand[i].memory, test, arg);
	return is;
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

/* Tests all memory that the job touches, except that of the word that it waits for. */
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
