/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of counted allocations. */
#include "memory_chunks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "memory.h"

int cuda_chunks_reserve(struct cuda_chunks *chunks, uint32_t n, struct error *err)
{
	struct cuda_chunk **grown;
	uint32_t room = chunks->room;

	if (n <= room - chunks->n)
		return 0;
	if (n > UINT32_MAX / 2 - chunks->n)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	room = chunks->n + n > 2 * room ? chunks->n + n : 2 * room;
	grown = realloc(chunks->list, room * sizeof *grown);
	if (!grown)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	chunks->list = grown;
	chunks->room = room;
	return 0;
}

static void append(struct cuda_chunks *chunks, struct cuda_chunk *chunk)
{
	chunks->list[chunks->n++] = chunk;
	chunks->size += chunk->size;
}

int cuda_chunks_add(struct cuda_chunks *chunks, CUmemGenericAllocationHandle handle, uint64_t size,
                    struct error *err)
{
	struct cuda_chunk *chunk = malloc(sizeof *chunk);

	if (!chunk) {
		driver.cuMemRelease(handle);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	chunk->handle = handle;
	chunk->size = size;
	atomic_init(&chunk->refs, 1);
	append(chunks, chunk);
	return 0;
}

/* The first allocation that begins at byte at or later, and where it begins. The list is complete. */
static uint32_t find(const struct cuda_chunks *chunks, uint64_t at, uint64_t *ret_start)
{
	const struct memory_chunk *by_place = chunks->base.by_place;
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (by_place[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_start = low < chunks->n ? by_place[low].at : chunks->size;
	return low;
}

int cuda_chunks_share(struct cuda_chunks *chunks, struct cuda_chunks *others, uint64_t offset, uint64_t size,
                      struct error *err)
{
	uint64_t start, end;
	uint32_t first, last;
	int r;

	if (offset > others->size || size > others->size - offset)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "offset %" PRIu64 " + size %" PRIu64
		                 " exceeds the memory of the region that it refers to, which has %" PRIu64
		                 " bytes",
		                 offset, size, others->size);
	first = find(others, offset, &start);
	last = find(others, offset + size, &end);
	if (start != offset || end != offset + size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "bytes [%" PRIu64 ", %" PRIu64
		                 ") are not whole allocations; the nearest end at bytes %" PRIu64
		                 " and %" PRIu64,
		                 offset, offset + size, start, end);
	r = cuda_chunks_reserve(chunks, last - first, err);
	if (r < 0)
		return r;
	for (uint32_t i = first; i < last; i++) {
		atomic_fetch_add(&others->list[i]->refs, 1);
		append(chunks, others->list[i]);
	}
	atomic_store(&others->base.shared, true);
	atomic_store(&chunks->base.shared, true);
	return 0;
}

int cuda_chunks_complete(struct cuda_chunks *chunks, struct error *err)
{
	struct memory_chunks *base = &chunks->base;
	uint64_t at = 0;

	base->by_place = malloc(chunks->n * sizeof *base->by_place);
	base->by_id = malloc(chunks->n * sizeof *base->by_id);
	if (!base->by_place || !base->by_id)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	base->n = chunks->n;
	for (uint32_t i = 0; i < chunks->n; i++) {
		base->by_place[i] =
		    (struct memory_chunk){ (uintptr_t)chunks->list[i], at, chunks->list[i]->size };
		at += chunks->list[i]->size;
	}
	if (memory_chunks_sort(base, &at))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "parts: the allocation at byte %" PRIu64 " is there twice; a region has each once",
	                 at);
}

static int unref(struct cuda_chunk *chunk, struct error *err)
{
	int r = 0;

	if (atomic_fetch_sub(&chunk->refs, 1) == 1) {
		r = memory_call(err, cuMemRelease, (chunk->handle));
		free(chunk);
	}
	return r;
}

int cuda_chunks_drop_last(struct cuda_chunks *chunks, struct error *err)
{
	struct cuda_chunk *chunk = chunks->list[--chunks->n];

	chunks->size -= chunk->size;
	return unref(chunk, err);
}

static void free_lists(struct cuda_chunks *chunks)
{
	free(chunks->list);
	free(chunks->base.by_place);
	free(chunks->base.by_id);
	*chunks = (struct cuda_chunks){ 0 };
}

void cuda_chunks_deinit(struct cuda_chunks *chunks)
{
	struct error ignored;

	while (chunks->n > 0)
		cuda_chunks_drop_last(chunks, &ignored);
	free_lists(chunks);
}

void cuda_chunks_leave(struct cuda_chunks *chunks)
{
	for (uint32_t i = 0; i < chunks->n; i++)
		if (atomic_fetch_sub(&chunks->list[i]->refs, 1) == 1)
			free(chunks->list[i]);
	free_lists(chunks);
}
