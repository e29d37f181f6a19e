/* SPDX-License-Identifier: Apache-2.0 */
/* Tests blocks of scratch memory: they do not overlap, lie within it, and can be given back. No device is
 * used. */
#include "kernels/cuda/stage/jobs.h"

#include <criterion/criterion.h>

#include "tests/support/oracle.h"

#define START 0x700000
#define SIZE  (64 * SCRATCH_ALIGN)
#define MOST  24

static struct scratch scratch;

static void set_up(void)
{
	scratch_init(&scratch);
	scratch.address = START;
	scratch.size = SIZE;
}

TestSuite(scratch, .init = set_up);

Test(scratch, first_fit)
{
	struct scratch_range a = { 0 }, b = { 0 }, c = { 0 };
	cr_assert(scratch_has(&scratch, SIZE));
	cr_assert_not(scratch_has(&scratch, SIZE + 1));
	scratch_take(&scratch, 1, &a);
	scratch_take(&scratch, SIZE / 2, &b);
	cr_assert_eq(a.start, START);
	cr_assert_eq(b.start, START + SCRATCH_ALIGN);
	cr_assert_not(scratch_has(&scratch, SIZE / 2));
	cr_assert(scratch_has(&scratch, SIZE / 2 - SCRATCH_ALIGN));
	scratch_give(&scratch, &a);
	scratch_give(&scratch, &a);
	scratch_take(&scratch, SCRATCH_ALIGN, &c);
	cr_assert_eq(c.start, START);
	scratch_give(&scratch, &b);
	scratch_give(&scratch, &c);
	cr_assert(scratch_has(&scratch, SIZE));
}

/* Returns whether any place in scratch memory has room, by trying them all. */
static bool has_room(const struct scratch_range *blocks, uint64_t size)
{
	for (uint64_t at = START; at + size <= START + SIZE; at += SCRATCH_ALIGN) {
		bool free = true;
		for (int i = 0; i < MOST; i++)
			free &= at >= blocks[i].start + blocks[i].size || at + size <= blocks[i].start ||
			        blocks[i].size == 0;
		if (free)
			return true;
	}
	return false;
}

Test(scratch, random_blocks)
{
	struct scratch_range blocks[MOST] = { 0 };
	uint64_t state = 1;
	for (int step = 0; step < 20000; step++) {
		struct scratch_range *block = &blocks[oracle_between(&state, 0, MOST - 1)];
		uint64_t size = (uint64_t)oracle_between(&state, 1, 12) * SCRATCH_ALIGN;
		if (block->size > 0) {
			scratch_give(&scratch, block);
			continue;
		}
		bool room = scratch_has(&scratch, size);
		cr_assert_eq(room, has_room(blocks, size), "step %d", step);
		const uint64_t largest = scratch_largest(&scratch);
		cr_assert(largest == 0 || has_room(blocks, largest), "step %d", step);
		cr_assert_not(has_room(blocks, largest + SCRATCH_ALIGN), "step %d", step);
		if (!room)
			continue;
		scratch_take(&scratch, size, block);
		cr_assert(block->start >= START && block->start + size <= START + SIZE, "step %d", step);
		for (int i = 0; i < MOST; i++)
			cr_assert(&blocks[i] == block || blocks[i].size == 0 ||
			              block->start >= blocks[i].start + blocks[i].size ||
			              block->start + block->size <= blocks[i].start,
			          "step %d: two blocks meet", step);
	}
}
