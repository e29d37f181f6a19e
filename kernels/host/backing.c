/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at files, and at what of them is still mapped.
 *
 * A file that was cut and has grown again is known by a page that is no longer mapped: cutting takes the
 * region's last page out of every mapping, and nothing but an access puts one in again. That page is looked
 * up only when the file's time of change is another one, which also writing to it and unlinking it make so.
 */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holes.h"
#include "job_memory.h"
#include "kernels/transform/layer_table.h"
#include "proto/memory/mapping.h"

#define NS_A_SECOND INT64_C(1000000000)

/* Longer than a tick of the clock that kernels before 6.13 take a file's times from. */
#define TICK_NS INT64_C(20000000)

int backing_new(int fd, uint64_t end, struct backing **ret, struct error *err)
{
	struct backing *backing = calloc(1, sizeof(*backing));
	if (!backing)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	backing->end = end;
	backing->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && backing->fd < 0) {
		error_set(err, STATUS_NO_MEMORY, "fd: it cannot be kept open: %s", strerror(errno));
		free(backing);
		return STATUS_NO_MEMORY;
	}
	*ret = backing;
	return 0;
}

void backing_free(struct backing *backing)
{
	if (!backing)
		return;
	backing_unpin(backing);
	if (backing->fd >= 0)
		close(backing->fd);
	free(backing);
}

/* ---- Pinned memory ---------------------------------------------------------------------------------- */

/* Watched before it is populated, so that this makes no page; locked, so that nothing else takes it out.
 * Where it cannot be locked (RLIMIT_MEMLOCK), the kernel may take it out to reclaim memory, if there is swap
 * space, although a device has pinned it. A file whose time of change is another one, too, then counts as
 * cut: its client registers it once more, and no byte is lost. The other way round, nothing that was cut is
 * missed. */
static bool is_mapped_once_more(struct backing *backing, size_t page)
{
	char *last = mapping_new(page, PROT_READ, backing->fd, (backing->end - 1) & ~(uint64_t)(page - 1));
	if (last == MAP_FAILED)
		return false;
	if (holes_can_watch())
		holes_watch(last, page);
	if (madvise(last, page, MADV_POPULATE_READ) < 0 || !holes_is_mapped(last)) {
		munmap(last, page);
		return false;
	}
	mlock(last, page);
	backing->last = (struct fault_range){ last, page };
	return true;
}

/* Where the last page cannot be had, its file has just been cut, which the next look finds, or the kernel is
 * too old, and a file that grows again is not noticed. */
void backing_pin(struct backing *backing, struct fault_range mapped, size_t page)
{
	fault_cover_add(&backing->cover, mapped, page);
	backing->is_pinned = true;
	if (backing->fd >= 0)
		is_mapped_once_more(backing, page);
}

void backing_unpin(struct backing *backing)
{
	if (!backing->is_pinned)
		return;
	fault_cover_remove(&backing->cover);
	backing->is_pinned = false;
	if (backing->last.size > 0)
		munmap((void *)backing->last.start, backing->last.size);
	backing->last.size = 0;
}

static int64_t ns_between(const struct timespec *from, const struct timespec *to)
{
	return (to->tv_sec - from->tv_sec) * NS_A_SECOND + (to->tv_nsec - from->tv_nsec);
}

/* now: before st. */
static bool has_changed(struct backing *backing, const struct stat *st, const struct timespec *now)
{
	bool same = backing->is_settled && ns_between(&backing->changed, &st->st_ctim) == 0;
	backing->changed = st->st_ctim;
	backing->is_settled = ns_between(&st->st_ctim, now) > TICK_NS;
	return !same;
}

static bool is_pinned_whole(struct backing *backing, const struct stat *st, const struct timespec *now)
{
	return !has_changed(backing, st, now) || backing->last.size == 0 ||
	       holes_is_mapped(backing->last.start);
}

/* ---- Looking ---------------------------------------------------------------------------------------- */

bool backing_is_whole(struct backing *backing)
{
	struct timespec now = { 0 };
	struct stat st;
	bool is = true;
	if (atomic_load(&backing->is_lost))
		return false;
	if (backing->fd >= 0) {
		if (backing->is_pinned)
			clock_gettime(CLOCK_REALTIME, &now);
		is = fstat(backing->fd, &st) == 0 && (uint64_t)st.st_size >= backing->end;
	}
	if (!backing->is_pinned)
		return is;
	if (is && backing->fd >= 0)
		is = is_pinned_whole(backing, &st, &now);
	is = is && !atomic_load(&backing->cover.has_failed);
	if (!is)
		atomic_store(&backing->is_lost, true);
	return is;
}

enum engine_loss engine_memory_loss(const struct engine_memory *memory, uint64_t *ret_bytes)
{
	const struct backing *backing = memory->backing;
	struct stat st;
	if (atomic_load(&memory->is_gone))
		return ENGINE_LOSS_GONE;
	if (!backing)
		return ENGINE_LOSS_NONE;
	if (backing->fd >= 0 && fstat(backing->fd, &st) == 0 && (uint64_t)st.st_size < backing->end) {
		*ret_bytes = (uint64_t)st.st_size;
		return ENGINE_LOSS_SHRUNK;
	}
	return atomic_load(&backing->is_lost) ? ENGINE_LOSS_PINS : ENGINE_LOSS_NONE;
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

static bool has_backing(const struct engine_memory *memory)
{
	return memory && memory->backing;
}

/* All memory that a move touches; NULL where there is none. */
#define MOVE_MEMORIES 6

static void memories_of(const struct engine_move *move, struct engine_memory *ret[MOVE_MEMORIES])
{
	ret[0] = move->dst;
	ret[1] = move->src;
	ret[2] = move->scale.memory;
	ret[3] = move->bias.memory;
	ret[4] = move->amax_scale.memory;
	ret[5] = move->amax_inverse.memory;
}

static inline bool test_backing(struct engine_memory *memory)
{
	return memory->backing != NULL;
}

bool backing_concerns(const struct engine_job *job)
{
	return job_any_memory(job, test_backing);
}

/* Of a job, which looks at each file once, in however many of its moves or layers that is. */
static uint64_t begin_check(void)
{
	static atomic_uint_fast64_t checks;

	return atomic_fetch_add(&checks, 2) + 2;
}

static bool is_whole(const struct engine_memory *memory, uint64_t check)
{
	uint64_t looked;

	if (!has_backing(memory))
		return true;
	looked = atomic_load(&memory->backing->looked);
	if (looked >> 1 != check >> 1) {
		looked = check | backing_is_whole(memory->backing);
		atomic_store(&memory->backing->looked, looked);
	}
	return looked & 1;
}

static bool is_move_whole(const struct engine_move *move, uint64_t check)
{
	struct engine_memory *memories[MOVE_MEMORIES];

	memories_of(move, memories);
	for (int i = 0; i < MOVE_MEMORIES; i++)
		if (!is_whole(memories[i], check))
			return false;
	return true;
}

static bool is_table_whole(const struct layer_table *table, uint64_t check)
{
	for (uint32_t i = 0; table && i < table->n; i++)
		if (!is_whole(table->memories[i], check))
			return false;
	return true;
}

static bool are_blocks_whole(const struct engine_blocks *blocks, uint64_t check)
{
	return is_whole(blocks->index_memory, check) && is_table_whole(blocks->dst.table, check) &&
	       is_table_whole(blocks->src.table, check);
}

static void check_batch(struct engine_job *job, uint64_t check)
{
	for (uint32_t i = 0; i < job->n_moves; i++) {
		struct engine_move *move = &job->moves[i];
		if (move->status == 0 && !is_move_whole(move, check))
			move->status = STATUS_DEVICE;
		if (job->status == 0)
			job->status = move->status;
	}
}

void backing_check(struct engine_job *job)
{
	const uint64_t check = begin_check();
	if (job->status != 0 && !(job->moves && job->status == STATUS_DEVICE))
		return;
	if (job->moves)
		check_batch(job, check);
	else if (!is_move_whole(&job->move, check) || (job->blocks && !are_blocks_whole(job->blocks, check)))
		job->status = job->move.status = STATUS_DEVICE;
	if (job->status == 0 && !is_whole(job->signal.memory, check))
		job->status = STATUS_DEVICE;
}
