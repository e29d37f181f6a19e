/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what is needed to map memory again in another child: descriptors, handles, the allocations that the
 * memory consists of, and which other memories share them. */
#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/backing.h"
#include "kernels/host/memory.h"

/* ---- What is kept ------------------------------------------------------------------------------------- */

static int keep_fd(int fd, int *ret, struct error *err)
{
	*ret = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (*ret >= 0)
		return 0;
	return error_set(err, STATUS_NO_MEMORY, "fd: it cannot be kept open: %s", strerror(errno));
}

int front_memory_keep(struct front_memory *memory, const struct engine_handle *handle, struct error *err)
{
	memory->handle = *handle;
	memory->handle.parts = NULL; /* The allocations of the parts are kept in memory->list. */
	memory->handle.n_parts = 0;
	memory->handle.unwanted = NULL;
	memory->handle.fd = -1;
	memory->comes_back = handle->fd >= 0 || handle->n_parts > 0 || handle->handle.len > 0;
	if (handle->handle.len > 0 && handle->handle.len <= sizeof memory->bytes) {
		memcpy(memory->bytes, handle->handle.data, handle->handle.len);
		memory->handle.handle.data = (const void *)memory->bytes;
	}
	if (handle->fd < 0 || handle->n_parts > 0)
		return 0;
	if (memory->host && memory->host->backing && memory->host->backing->fd >= 0)
		memory->handle.fd = memory->host->backing->fd;
	else if (memory->host && memory->host->seals >= 0)
		memory->handle.fd = memory->host->seals;
	memory->is_lent = memory->handle.fd >= 0;
	return memory->is_lent ? 0 : keep_fd(handle->fd, &memory->handle.fd, err);
}

static void unref_chunk(struct front_chunk *chunk)
{
	if (atomic_fetch_sub(&chunk->refs, 1) > 1)
		return;
	if (chunk->fd >= 0)
		close(chunk->fd);
	free(chunk);
}

void front_memory_let_go(struct front_memory *memory)
{
	for (uint32_t i = 0; i < memory->chunks.n; i++)
		unref_chunk(memory->list[i]);
	free(memory->list);
	free(memory->chunks.by_place);
	free(memory->chunks.by_id);
	if (memory->handle.fd >= 0 && !memory->is_lent)
		close(memory->handle.fd);
	if (memory->host)
		host_memory_unmap(memory->host);
}

/* ---- Allocations -------------------------------------------------------------------------------------- */

static int reserve_chunks(struct front_memory *memory, uint32_t n, struct error *err)
{
	memory->list = calloc(n, sizeof *memory->list);
	memory->chunks.by_place = calloc(n, sizeof *memory->chunks.by_place);
	memory->chunks.by_id = calloc(n, sizeof *memory->chunks.by_id);
	if (memory->list && memory->chunks.by_place && memory->chunks.by_id)
		return 0;
	return error_set(err, STATUS_NO_MEMORY, "out of memory");
}

static void add_chunk(struct front_memory *memory, struct front_chunk *chunk, uint64_t *at)
{
	memory->chunks.by_place[memory->chunks.n] =
	    (struct memory_chunk){ (uintptr_t)chunk, *at, chunk->size };
	memory->list[memory->chunks.n++] = chunk;
	*at += chunk->size;
}

static int add_new_chunk(struct front_memory *memory, int fd, uint64_t size, uint64_t *at, struct error *err)
{
	struct front_chunk *chunk = calloc(1, sizeof *chunk);
	int r = 0;

	if (!chunk)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	atomic_init(&chunk->refs, 1);
	chunk->fd = -1;
	chunk->size = size;
	add_chunk(memory, chunk, at);
	if (fd >= 0)
		r = keep_fd(fd, &chunk->fd, err);
	return r;
}

/* Adds references to those allocations of another memory that make up the part. The child has found that the
 * part consists of whole allocations; most is the number of allocations of the whole memory. */
static void share_chunks(struct front_memory *memory, const struct engine_part *part, uint32_t most,
                         uint64_t *at)
{
	struct front_memory *other = front_memory_of(part->memory);

	for (uint32_t i = 0; i < other->chunks.n && memory->chunks.n < most; i++) {
		const uint64_t start = other->chunks.by_place[i].at;

		if (!front_part_has(part, start))
			continue;
		atomic_fetch_add(&other->list[i]->refs, 1);
		add_chunk(memory, other->list[i], at);
	}
	atomic_store(&other->chunks.shared, true);
	atomic_store(&memory->chunks.shared, true);
}

/* Makes the memory's only allocation the owner of its descriptor, because the allocation may outlive the
 * memory. */
static void lend_descriptor(struct front_memory *memory)
{
	if (memory->chunks.n == 0)
		return;
	memory->list[0]->fd = memory->handle.fd;
	memory->is_lent = true;
}

static int list_chunks(struct front_memory *memory, const struct engine_handle *handle,
                       const struct wire_answer *result, struct error *err)
{
	uint64_t at = 0, ignored;
	int r = reserve_chunks(memory, result->n_chunks, err);

	if (r == 0 && handle->n_parts == 0) {
		r = add_new_chunk(memory, -1, result->chunk, &at, err);
		lend_descriptor(memory);
	}
	for (uint32_t i = 0; r == 0 && i < handle->n_parts && memory->chunks.n < result->n_chunks; i++) {
		const struct engine_part *part = &handle->parts[i];

		if (part->memory)
			share_chunks(memory, part, result->n_chunks, &at);
		else
			r = add_new_chunk(memory, part->fd, part->size, &at, err);
	}
	if (r == 0)
		memory_chunks_sort(&memory->chunks, &ignored);
	return r;
}

/* ---- Identity ----------------------------------------------------------------------------------------- */

/* Returns an identity that no memory of any engine has had. */
static uint64_t new_identity(void)
{
	static atomic_uint_fast64_t last;

	return atomic_fetch_add(&last, 1) + 1;
}

/* Gives the memory an identity, which it shares with other memories if the child says that they are the same
 * allocation. The first word, which tells kinds of memory apart, is the child's. */
static void identify(struct front *front, struct front_memory *memory)
{
	struct front_memory *other;

	memory->base.memory[0] = memory->of_child[0];
	memory->base.memory[1] = 0;
	pthread_mutex_lock(&front->lock);
	TAILQ_FOREACH(other, &front->memories, entry)
		if (memcmp(other->of_child, memory->of_child, sizeof memory->of_child) == 0) {
			memory->base.memory[1] = other->base.memory[1];
			break;
		}
	pthread_mutex_unlock(&front->lock);
	if (!memory->base.memory[1])
		memory->base.memory[1] = new_identity();
}

static void identify_chunks(struct front_memory *memory)
{
	const bool is_one = memory->chunks.n == 1;

	memory->base.chunks = &memory->chunks;
	memory->base.memory[0] = ~(uint64_t)(is_one ? REGION_KIND_CUDA_FD : REGION_KIND_COUNT);
	memory->base.memory[1] = is_one ? memory->chunks.by_place[0].id : new_identity();
}

int front_memory_give_backing(struct front_memory *memory, bool has_backing, struct error *err)
{
	struct engine_memory *host = memory->host;
	int r = 0;

	if (has_backing && !host->backing)
		r = backing_new(-1, 0, &host->backing, err);
	memory->base.backing = host->backing;
	return r;
}

static int show_host(struct front_memory *memory, const struct wire_answer *result, struct error *err)
{
	struct engine_memory *host = memory->host;

	memory->base.host = host->host;
	atomic_store(&memory->base.is_loose, result->is_loose);
	atomic_store(&memory->base.may_stall, atomic_load(&host->may_stall));
	memory->base.seals = host->seals;
	memory->base.user = host->user;
	memcpy(memory->base.memory, host->memory, sizeof host->memory);
	return front_memory_give_backing(memory, result->has_backing, err);
}

int front_memory_describe(struct front *front, struct front_memory *memory,
                          const struct engine_handle *handle, const struct wire_answer *result,
                          struct error *err)
{
	int r;

	memory->base.base = result->base;
	memory->base.address = result->address;
	memcpy(memory->of_child, result->memory, sizeof memory->of_child);
	if (memory->host)
		return show_host(memory, result, err);
	if (result->n_chunks == 0) {
		identify(front, memory);
		return 0;
	}
	r = list_chunks(memory, handle, result, err);
	if (r == 0)
		identify_chunks(memory);
	return r;
}
