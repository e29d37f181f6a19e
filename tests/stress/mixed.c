/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of request has a function, which is drawn by weight. */
#include "mixed.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/oracle.h"

#define MANY     16 /* tickets at once */
#define PAGE     4096
#define LARGE    (4 << 20)
#define BYTES_OF (128 << 10) /* most bytes of a usual region */

static int64_t between(struct mixed *m, int64_t low, int64_t high)
{
	return oracle_between(&m->state, low, high);
}

/* Returns whether the call's status is the expected one; records the difference otherwise. */
static bool is(struct mixed *m, int status, int expected, const char *what)
{
	if (status != expected) {
		snprintf(m->why, sizeof m->why, "%s: %s where %s was due: %s", what, tma_status_name(status),
		         tma_status_name(expected), tma_last_error(m->client));
		return false;
	}
	m->calls++;
	if (expected)
		m->provoked[-expected - 1]++;
	return true;
}

/* ---- Regions ---------------------------------------------------------------------------------------- */

static bool region_put(struct mixed *m, int status, tma_region *region, int slot, bool is_read_only,
                       const char *what)
{
	if (!is(m, status, TMA_OK, what))
		return false;
	m->regions[slot].region = region;
	m->regions[slot].is_read_only = is_read_only;
	return true;
}

static bool region_create(struct mixed *m, int slot)
{
	size_t size = (size_t)(between(m, 0, 31) ? between(m, 1, BYTES_OF) : LARGE);
	tma_region *region = NULL;
	int status = tma_region_create_kind(m->client, TMA_REGION_MEMFD, size, &region);

	return region_put(m, status, region, slot, false, "region_create");
}

static int sealed_memfd(size_t size)
{
	int fd = memfd_create("mixed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool region_register(struct mixed *m, int slot)
{
	uint64_t offset = (uint64_t)between(m, 0, 2 * PAGE);
	size_t size = (size_t)between(m, 1, BYTES_OF);
	bool is_read_only = between(m, 0, 3) == 0;
	tma_region *region = NULL;
	int fd = sealed_memfd(offset + size), status;

	if (fd < 0) {
		snprintf(m->why, sizeof m->why, "no memfd");
		return false;
	}
	status = tma_region_register_memfd(m->client, fd, offset, size,
	                                   is_read_only ? TMA_REGION_READ_ONLY : 0, &region);
	close(fd);
	return region_put(m, status, region, slot, is_read_only, "region_register");
}

static bool region_release(struct mixed *m, int slot)
{
	tma_region *region = m->regions[slot].region;

	m->regions[slot].region = NULL;
	return is(m, tma_region_release(region), TMA_OK, "region_release");
}

static bool region_churn(struct mixed *m)
{
	int slot = (int)between(m, 0, MIXED_REGIONS - 1);

	if (m->regions[slot].region)
		return region_release(m, slot);
	return between(m, 0, 1) ? region_create(m, slot) : region_register(m, slot);
}

static tma_region *region_any(struct mixed *m, bool is_for_writing)
{
	int at = (int)between(m, 0, MIXED_REGIONS - 1);

	for (int i = 0; i < MIXED_REGIONS; i++, at = (at + 1) % MIXED_REGIONS)
		if (m->regions[at].region && !(is_for_writing && m->regions[at].is_read_only))
			return m->regions[at].region;
	return NULL;
}

/* ---- Transforms ------------------------------------------------------------------------------------- */

struct move {
	struct tma_tensor dst, src;
	int perm[2];
	int64_t before[2], after[2];
	struct tma_transform transform;
};

/* Draws a valid transform that fits its regions. Returns false if there are no regions. */
static bool move_draw(struct mixed *m, struct move *ret)
{
	static const enum tma_dtype dtypes[] = { TMA_UINT8, TMA_BFLOAT16, TMA_FLOAT32, TMA_INT64,
		                                 TMA_COMPLEX128 };
	enum tma_dtype dtype = dtypes[between(m, 0, 4)];
	tma_region *dst = region_any(m, true), *src = region_any(m, false);
	int64_t element = (int64_t)tma_dtype_size(dtype), room, rows, columns, pad;
	bool is_turned = between(m, 0, 1), is_padded = between(m, 0, 2) == 0;

	if (!dst || !src || dst == src)
		return false;
	room = (int64_t)(tma_region_size(dst) < tma_region_size(src) ? tma_region_size(dst)
	                                                             : tma_region_size(src)) /
	       element;
	pad = is_padded ? between(m, 1, 3) : 0;
	rows = between(m, 1, 200);
	columns = room / (rows + 2 * pad) - 2 * pad;
	if (columns < 1)
		return false;
	*ret = (struct move){
		.dst = { .region = dst, .dtype = dtype, .rank = 2 },
		.src = { .region = src, .dtype = dtype, .rank = 2, .shape = { rows, columns } },
		.perm = { is_turned, !is_turned },
		.before = { pad, pad },
		.after = { pad, pad },
	};
	ret->dst.shape[0] = (is_turned ? columns : rows) + 2 * pad;
	ret->dst.shape[1] = (is_turned ? rows : columns) + 2 * pad;
	ret->transform = (struct tma_transform){
		.dst = &ret->dst,
		.src = &ret->src,
		.perm = is_turned ? ret->perm : NULL,
		.before = is_padded ? ret->before : NULL,
		.after = is_padded ? ret->after : NULL,
		.mode = (enum tma_pad_mode)(between(m, 0, 1) ? TMA_PAD_CONSTANT : between(m, 1, 4)),
	};
	/* Reflecting requires more elements than the padding. */
	if (rows <= pad || columns <= pad)
		ret->transform.mode = TMA_PAD_CONSTANT;
	return true;
}

static bool move_call(struct mixed *m)
{
	struct move move;
	int status;

	if (!move_draw(m, &move))
		return region_churn(m);
	if (!move.transform.before && !move.transform.perm)
		status = tma_copy(m->client, &move.dst, &move.src);
	else if (!move.transform.before)
		status = tma_transpose(m->client, &move.dst, &move.src, move.perm);
	else if (!move.transform.perm)
		status = tma_pad(m->client, &move.dst, &move.src, move.before, move.after,
		                 move.transform.mode, (struct tma_number){ 0 });
	else
		status = tma_transform(m->client, &move.transform);
	m->transforms++;
	return is(m, status, TMA_OK, "a transform");
}

static bool move_many(struct mixed *m)
{
	int n = (int)between(m, 1, MANY), submitted = 0;
	tma_ticket tickets[MANY];
	struct move move;
	bool good = true;

	tma_set_batching(m->client, between(m, 0, 1));
	for (; good && submitted < n; submitted++)
		good =
		    move_draw(m, &move)
			? is(m, tma_submit(m->client, &move.transform, &tickets[submitted]), TMA_OK, "submit")
			: is(m, tma_submit_ping(m->client, &tickets[submitted]), TMA_OK, "submit_ping");
	for (int i = 0; good && i < submitted; i++)
		good = is(m, tma_wait(m->client, tickets[i], NULL), TMA_OK, "wait");
	tma_set_batching(m->client, false);
	m->transforms += (uint64_t)submitted;
	return good;
}

/* ---- Questions -------------------------------------------------------------------------------------- */

static bool document(struct mixed *m)
{
	tma_document *ret = NULL;
	struct move move;
	int status;

	switch (between(m, 0, 4)) {
	case 0:
		return is(m, tma_ping(m->client), TMA_OK, "ping");
	case 1:
		status = tma_info(m->client, &ret);
		break;
	case 2:
		status = tma_stats(m->client, &ret);
		break;
	case 3:
		status = tma_regions(m->client, &ret);
		break;
	default:
		if (!move_draw(m, &move))
			return region_churn(m);
		status = tma_explain(m->client, &move.transform, &ret);
	}
	tma_document_free(ret);
	return is(m, status, TMA_OK, "a document");
}

/* ---- What is wrong on purpose ------------------------------------------------------------------------ */

static bool wrong_region(struct mixed *m)
{
	tma_region *region = NULL;
	int fd = sealed_memfd(PAGE), status;

	switch (between(m, 0, 2)) {
	case 0:
		status = tma_region_register_memfd(m->client, fd, 1, PAGE, 0, &region);
		close(fd);
		return is(m, status, TMA_OUT_OF_RANGE, "a region past the end of its memfd");
	case 1:
		status = tma_region_register_memfd(m->client, fd, 0, 0, 0, &region);
		close(fd);
		return is(m, status, TMA_INVALID_ARGUMENT, "a region of no bytes");
	default:
		close(fd);
		fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
		status = tma_region_register_memfd(m->client, fd, 0, PAGE, 0, &region);
		close(fd);
		return is(m, status, TMA_INVALID_ARGUMENT, "a file that is not in memory");
	}
}

static bool wrong_move(struct mixed *m)
{
	struct move move;

	if (!move_draw(m, &move))
		return wrong_region(m);
	switch (between(m, 0, 3)) {
	case 0:
		move.src.offset = tma_region_size(move.src.region);
		return is(m, tma_transform(m->client, &move.transform), TMA_OUT_OF_RANGE, "past the end");
	case 1:
		move.src.region = move.dst.region;
		return is(m, tma_transform(m->client, &move.transform), TMA_OVERLAP, "onto itself");
	case 2:
		move.dst.shape[0]++;
		return is(m, tma_transform(m->client, &move.transform), TMA_INVALID_ARGUMENT,
		          "another shape");
	default:
		move.src.dtype = TMA_BOOL;
		return is(m, tma_transform(m->client, &move.transform), TMA_INVALID_ARGUMENT, "another type");
	}
}

/* ---- All of it --------------------------------------------------------------------------------------- */

bool mixed_step(struct mixed *m)
{
	int64_t chance = between(m, 0, 99);

	if (chance < 20)
		return region_churn(m);
	if (chance < 60)
		return move_call(m);
	if (chance < 75)
		return move_many(m);
	if (chance < 90)
		return document(m);
	return between(m, 0, 1) ? wrong_move(m) : wrong_region(m);
}

bool mixed_end(struct mixed *m)
{
	bool good = true;

	for (int slot = 0; slot < MIXED_REGIONS; slot++)
		if (m->regions[slot].region && good)
			good = region_release(m, slot);
	return good;
}
