/* SPDX-License-Identifier: Apache-2.0 */
/* The front's memory: what the child has mapped, and what is kept to map it again in the next child.
 *
 * What the owner sees of a memory does not change when it is mapped again. Its address remains the one that
 * it had in its first child; in every other child the address has the same remainder modulo ADDRESS_UNIT. Its
 * identity is assigned by the front. Host memory is also mapped in this process, for owners that read it.
 */
#include "front.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/backing.h"
#include "kernels/host/memory.h"
#include "proto/clock.h"

bool front_memory_number(const struct child *child, const struct engine_memory *base, uint32_t *ret)
{
	const struct front_memory *memory = (const struct front_memory *)base;

	*ret = base ? memory->number : WIRE_NONE;
	return !base || !child || atomic_load(&memory->life) == child->life;
}

void front_memory_lose_pins(struct front *front, uint32_t number)
{
	struct front_memory *memory;

	pthread_mutex_lock(&front->lock);
	TAILQ_FOREACH(memory, &front->memories, entry)
		if (memory->number == number && memory->base.backing)
			atomic_store(&memory->base.backing->is_lost, true);
	pthread_mutex_unlock(&front->lock);
}

/* ---- Mapping ------------------------------------------------------------------------------------------ */

struct child *front_child(struct front *front, struct error *err)
{
	struct child *child = NULL;

	pthread_mutex_lock(&front->lock);
	if (front->state == FRONT_UP)
		child = child_ref(front->child);
	else
		error_set(err, STATUS_DEVICE_LOST, "the device is lost and not back yet: %.200s",
		          front->failed.message);
	pthread_mutex_unlock(&front->lock);
	return child;
}

static int new_memory(struct front *front, const struct engine_handle *handle, struct front_memory **ret,
                      struct error *err)
{
	struct front_memory *memory = calloc(1, sizeof *memory);
	bool is_numbered;

	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	pthread_mutex_lock(&front->lock);
	is_numbered = numbers_take(&front->memory_numbers, &memory->number);
	pthread_mutex_unlock(&front->lock);
	if (!is_numbered) {
		free(memory);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	memory->base = (struct engine_memory){ .kind = handle->kind,
		                               .writable = handle->writable,
		                               .size = handle->size };
	memory->front = front;
	memory->handle = (struct engine_handle){ .fd = -1 };
	*ret = memory;
	return 0;
}

/* Frees a memory that neither the child nor anybody else uses. */
static void free_memory(struct front *front, struct front_memory *memory)
{
	pthread_mutex_lock(&front->lock);
	numbers_give(&front->memory_numbers, memory->number);
	pthread_mutex_unlock(&front->lock);
	front_memory_let_go(memory);
	free(memory);
}

/* Returns whether a part belongs to the memory of another engine, which another child has. Its allocations
 * are then sent, each by its descriptor. */
static bool is_foreign(const struct front *front, const struct engine_part *part)
{
	return part->memory && front_memory_of(part->memory)->front != front;
}

static uint32_t count_parts(const struct front *front, const struct engine_handle *handle)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < handle->n_parts; i++) {
		const struct engine_part *part = &handle->parts[i];

		n += is_foreign(front, part) ? front_memory_of(part->memory)->chunks.n : 1;
	}
	return n;
}

/* Appends the allocations of a foreign part to `parts` and *fds, and advances *n and *fds. */
static int fill_foreign(const struct engine_handle *handle, uint32_t i, struct wire_part *parts, uint32_t *n,
                        int **fds, struct error *err)
{
	const struct engine_part *part = &handle->parts[i];
	const struct front_memory *other = front_memory_of(part->memory);
	uint64_t end = part->offset;

	for (uint32_t c = 0; c < other->chunks.n; c++) {
		const struct memory_chunk *chunk = &other->chunks.by_place[c];

		if (!front_part_has(part, chunk->at))
			continue;
		if (chunk->at != end)
			break;
		parts[(*n)++] = (struct wire_part){ WIRE_NONE, 0, chunk->size };
		*(*fds)++ = other->list[c]->fd;
		end += chunk->size;
	}
	if (end == part->offset + part->size)
		return 0;
	return error_set(err, STATUS_OUT_OF_RANGE,
	                 "parts[%u]: bytes [%" PRIu64 ", %" PRIu64
	                 ") are not whole allocations of another device's region",
	                 i, part->offset, part->offset + part->size);
}

/* Sets `parts` and fds to what is sent for the handle's parts, and *ret_n to the number of parts. */
static int fill_parts(const struct front *front, const struct child *child,
                      const struct engine_handle *handle, struct wire_part *parts, uint32_t *ret_n, int *fds,
                      struct error *err)
{
	uint32_t n = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < handle->n_parts; i++) {
		const struct engine_part *part = &handle->parts[i];

		if (is_foreign(front, part)) {
			r = fill_foreign(handle, i, parts, &n, &fds, err);
			continue;
		}
		parts[n] = (struct wire_part){ WIRE_NONE, part->offset, part->size };
		if (!part->memory)
			*fds++ = part->fd;
		else if (!front_memory_number(child, part->memory, &parts[n].memory))
			r = error_set(
			    err, STATUS_DEVICE_LOST,
			    "parts[%u]: the device was lost, and the region that it refers to could "
			    "not be mapped again; register that again",
			    i);
		n++;
	}
	*ret_n = n;
	return r;
}

static struct wire_call call_of(enum wire_call_kind kind, uint32_t number, const struct engine_handle *handle)
{
	struct wire_call call = { .kind = kind,
		                  .memory = number,
		                  .region_kind = handle->kind,
		                  .writable = handle->writable,
		                  .is_peer = handle->is_peer,
		                  .is_untrusted = handle->is_untrusted,
		                  .n_parts = handle->n_parts,
		                  .offset = handle->offset,
		                  .size = handle->size,
		                  .allocation = handle->allocation,
		                  .handle_len = (uint32_t)handle->handle.len };

	if (handle->handle.len <= sizeof call.handle && handle->handle.len > 0)
		memcpy(call.handle, handle->handle.data, handle->handle.len);
	return call;
}

/* A memory to be mapped or made in a child under a number. */
struct mapping {
	enum wire_call_kind kind;
	uint32_t number;
	const struct engine_handle *handle;
	/* State of mapping all memory again; NULL: the caller waits for as long as it takes. */
	struct anew *anew;
};

static bool may_take_longer(void *arg);

static int map_in_child(struct front *front, struct child *child, const struct mapping *mapping,
                        struct wire_answer *ret, int *ret_fd, struct error *err)
{
	const struct engine_handle *handle = mapping->handle;
	struct child_call call = { .call = call_of(mapping->kind, mapping->number, handle),
		                   .fd = handle->n_parts ? -1 : handle->fd,
		                   .unwanted = handle->unwanted,
		                   .may_wait = mapping->anew ? may_take_longer : NULL,
		                   .arg = mapping->anew };
	struct wire_part *parts = NULL;
	int *fds = NULL;
	int r = 0;

	if (handle->n_parts) {
		const uint32_t most = count_parts(front, handle);

		parts = calloc(most, sizeof *parts);
		fds = calloc(most, sizeof *fds);
		r = parts && fds ? fill_parts(front, child, handle, parts, &call.call.n_parts, fds, err)
		                 : error_set(err, STATUS_NO_MEMORY, "out of memory");
		call.parts = parts;
		call.fds = fds;
	}
	if (r == 0)
		r = child_do(child, &call, ret, ret_fd, err);
	free(parts);
	free(fds);
	return r;
}

/* Does one step of unmapping in the child. Returns true if that was the last step, or if the memory is gone
 * because the child has ended. anew is as in struct mapping. */
static bool unmap_step_in_child(struct child *child, uint32_t number, struct anew *anew)
{
	struct child_call call = { .call = { .kind = WIRE_UNMAP_STEP, .memory = number },
		                   .fd = -1,
		                   .may_wait = anew ? may_take_longer : NULL,
		                   .arg = anew };
	struct wire_answer result;
	struct error ignored;

	return child_do(child, &call, &result, NULL, &ignored) < 0 || result.is_last;
}

static void unmap_in_child(struct child *child, uint32_t number, struct anew *anew)
{
	while (!unmap_step_in_child(child, number, anew))
		continue;
}

/* Adds a memory to those that the front maps again in each new child. Returns DEVICE_LOST if the child has
 * ended meanwhile. */
static int add(struct front *front, struct child *child, struct front_memory *memory, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&front->lock);
	if (front->child == child && front->state == FRONT_UP) {
		atomic_store(&memory->life, child->life);
		TAILQ_INSERT_TAIL(&front->memories, memory, entry);
	} else {
		r = error_set(err, STATUS_DEVICE_LOST, "the device was lost while the memory was mapped");
	}
	pthread_mutex_unlock(&front->lock);
	return r;
}

/* Maps host memory in this process, before the child does. This refuses a file of an untrusted user that
 * could keep the child waiting (scout.h). */
static int see_host(struct front_memory *memory, const struct engine_handle *handle, struct error *err)
{
	return handle->kind == REGION_KIND_MEMFD ? host_memory_view(handle, &memory->host, err) : 0;
}

/* Completes a memory that the child has mapped already. On failure it is unmapped there. */
static int finish_map(struct front *front, struct child *child, struct front_memory *memory,
                      const struct engine_handle *handle, const struct wire_answer *result, struct error *err)
{
	int r = front_memory_keep(memory, handle, err);

	if (r == 0)
		r = front_memory_describe(front, memory, handle, result, err);
	if (r == 0)
		r = add(front, child, memory, err);
	if (r < 0)
		unmap_in_child(child, memory->number, NULL);
	return r;
}

/* Makes the child pin a memory that was loose (engine_memory.is_loose) and whose file has been sealed. */
int front_settle(struct engine *engine, struct engine_memory *base, const atomic_bool *unwanted,
                 struct error *err)
{
	struct front *front = front_of(engine);
	struct front_memory *memory = front_memory_of(base);
	struct child_call call = { .call = { .kind = WIRE_SETTLE, .memory = memory->number },
		                   .fd = -1,
		                   .unwanted = unwanted };
	struct child *child = front_child(front, err);
	struct wire_answer result;
	int r;

	if (!child)
		return err->status;
	if (atomic_load(&memory->life) == child->life)
		r = child_do(child, &call, &result, NULL, err);
	else
		r = error_set(err, STATUS_DEVICE_LOST,
		              "the device was lost, and the memory could not be mapped again");
	child_unref(child);
	if (r == 0)
		r = front_memory_give_backing(memory, result.has_backing, err);
	if (r < 0)
		return r;
	atomic_store(&base->may_stall, false);
	atomic_store(&base->is_loose, false);
	return 0;
}

/* ---- Making ------------------------------------------------------------------------------------------- */

/* Makes host memory in this process, so that it outlives the child. The child maps it like a client's
 * memory. */
static int make_host(struct front *front, struct child *child, struct front_memory *memory,
                     const struct engine_handle *wanted, struct engine_export *ret_export, struct error *err)
{
	struct engine_handle handle = {
		.kind = wanted->kind, .size = wanted->size, .writable = true, .unwanted = wanted->unwanted
	};
	struct wire_answer result;
	int r = host_memory_create(wanted, &memory->host, ret_export, err);

	if (r < 0)
		return r;
	handle.fd = ret_export->fd;
	r = map_in_child(front, child, &(struct mapping){ WIRE_MAP, memory->number, &handle, NULL }, &result,
	                 NULL, err);
	if (r == 0)
		r = finish_map(front, child, memory, &handle, &result, err);
	if (r < 0)
		close(ret_export->fd);
	return r;
}

/* Makes device memory in the child. If it has a descriptor, it outlives that process; if it has only a
 * handle, it does not. */
static int make_device(struct front *front, struct child *child, struct front_memory *memory,
                       const struct engine_handle *wanted, struct engine_export *ret_export,
                       struct error *err)
{
	struct engine_handle handle = { .kind = wanted->kind,
		                        .size = wanted->size,
		                        .writable = true,
		                        .fd = -1,
		                        .unwanted = wanted->unwanted };
	struct wire_answer result;
	int r = map_in_child(front, child, &(struct mapping){ WIRE_MAKE, memory->number, &handle, NULL },
	                     &result, &ret_export->fd, err);

	if (r < 0)
		return r;
	handle.fd = ret_export->fd;
	r = finish_map(front, child, memory, &handle, &result, err);
	if (r < 0) {
		if (ret_export->fd >= 0)
			close(ret_export->fd);
		return r;
	}
	ret_export->handle_len = result.handle_len;
	memcpy(ret_export->handle, result.handle, sizeof ret_export->handle);
	return 0;
}

static int map_given(struct front *front, struct child *child, struct front_memory *memory,
                     const struct engine_handle *handle, struct error *err)
{
	const struct mapping mapping = { WIRE_MAP, memory->number, handle, NULL };
	struct wire_answer result;
	int r = see_host(memory, handle, err);

	if (r == 0)
		r = map_in_child(front, child, &mapping, &result, NULL, err);
	return r < 0 ? r : finish_map(front, child, memory, handle, &result, err);
}

/* Maps memory or, if ret_export is not NULL, makes it. */
static int map_or_make(struct front *front, const struct engine_handle *handle, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err)
{
	struct engine_export made = { .fd = -1 };
	struct child *child = front_child(front, err);
	struct front_memory *memory = NULL;
	int r;

	if (!child)
		return err->status;
	r = new_memory(front, handle, &memory, err);
	if (r == 0) {
		memory->base.writable = handle->writable || ret_export;
		r = !ret_export ? map_given(front, child, memory, handle, err)
		    : handle->kind == REGION_KIND_MEMFD
		        ? make_host(front, child, memory, handle, &made, err)
		        : make_device(front, child, memory, handle, &made, err);
		if (r < 0)
			free_memory(front, memory);
		else
			*ret = &memory->base;
	}
	if (r == 0 && ret_export)
		*ret_export = made;
	child_unref(child);
	return r;
}

int front_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
              struct error *err)
{
	return map_or_make(front_of(engine), handle, ret, NULL, err);
}

int front_make(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
               struct engine_export *ret_export, struct error *err)
{
	return map_or_make(front_of(engine), wanted, ret, ret_export, err);
}

/* ---- Mapping anew ------------------------------------------------------------------------------------- */

/* The front's own thread maps all memory in a child that is not in use yet. Everything waits for this, so no
 * single mapping may take longer than map_ms plus one millisecond for each SLOW_BYTES_PER_MS bytes. That rate
 * is about a GiB in a second, which is slow. */
#define SLOW_BYTES_PER_MS ((uint64_t)1 << 20)

/* Maximum number of users with busy files that are remembered, so that further files of the same users are
 * not even tried. If there are more such users, every file that might be busy is treated as busy. */
#define MOST_BUSY 8

struct anew {
	struct front *front;
	struct child *child;
	uint64_t until_ns; /* monotonic time at which the current mapping has taken too long */
	bool is_late;      /* The current mapping has taken too long. */
	uint32_t n_busy;
	uint64_t busy[MOST_BUSY]; /* numbers of users (engine_handle.user) */
};

static bool is_busy(struct anew *anew, struct engine_memory *host)
{
	if (!host || !engine_memory_may_stall(host))
		return false;
	for (uint32_t i = 0; i < anew->n_busy; i++)
		if (anew->busy[i] == host->user)
			return true;
	if (anew->n_busy == MOST_BUSY)
		return true;
	if (host_memory_is_free(host))
		return false;
	anew->busy[anew->n_busy++] = host->user;
	return true;
}

static bool may_take_longer(void *arg)
{
	struct anew *anew = arg;
	struct front *front = anew->front;
	bool is_closing;

	pthread_mutex_lock(&front->lock);
	is_closing = front->is_closing;
	pthread_mutex_unlock(&front->lock);
	anew->is_late = clock_ns() >= anew->until_ns;
	return !is_closing && !anew->is_late && front_pulse(front, anew->child);
}

/* Maps a memory of several allocations, each by its own descriptor. */
static int map_list(struct front *front, struct anew *anew, const struct front_memory *memory,
                    struct wire_answer *ret, struct error *err)
{
	struct engine_part *parts = calloc(memory->chunks.n, sizeof *parts);
	struct engine_handle handle = memory->handle;
	int r;

	if (!parts)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < memory->chunks.n; i++)
		parts[i] = (struct engine_part){ .fd = memory->list[i]->fd, .size = memory->list[i]->size };
	handle.parts = parts;
	handle.n_parts = memory->chunks.n;
	r = map_in_child(front, anew->child, &(struct mapping){ WIRE_MAP, memory->number, &handle, anew },
	                 ret, NULL, err);
	free(parts);
	return r;
}

/* An address matters only modulo this many bytes, which is more than any element, vector or cache line. */
#define ADDRESS_UNIT 128

/* Returns whether what the owner has seen of a memory is still true of the new mapping. */
static bool fits(const struct front_memory *memory, const struct wire_answer *result)
{
	return result->base == memory->base.base &&
	       (result->address - memory->base.address) % ADDRESS_UNIT == 0;
}

static int map_one_anew(struct front *front, struct anew *anew, struct front_memory *memory,
                        struct wire_answer *ret, struct error *err)
{
	const bool is_list = memory->chunks.n > 0 && memory->handle.fd < 0; /* It came in parts. */
	const struct mapping mapping = { WIRE_MAP, memory->number, &memory->handle, anew };
	int r;

	if (!memory->comes_back)
		return STATUS_UNSUPPORTED; /* It is gone with the process that made it. */
	if (is_busy(anew, memory->host))
		return STATUS_BUSY;
	anew->until_ns = clock_ns() + (front_times.map_ms + memory->base.size / SLOW_BYTES_PER_MS) * 1000000;
	r = is_list ? map_list(front, anew, memory, ret, err)
	            : map_in_child(front, anew->child, &mapping, ret, NULL, err);
	if (r == 0 && !fits(memory, ret)) {
		unmap_in_child(anew->child, memory->number, anew);
		r = STATUS_UNSUPPORTED;
	}
	if (!anew->is_late)
		return r;
	return error_set(err, STATUS_DEVICE_LOST,
	                 "process %d, which ran the engine, hung while it mapped %" PRIu64 " bytes",
	                 (int)anew->child->pid, memory->base.size);
}

/* Moves the next memory that is to be mapped to the end of the list and returns it; NULL: none is left. *left
 * is the number of memories in the list that have not been considered yet. Caller holds front->lock. */
static struct front_memory *take_next(struct front *front, uint32_t *left)
{
	struct front_memory *memory;

	while ((memory = TAILQ_FIRST(&front->memories)) && (*left)-- > 0) {
		TAILQ_REMOVE(&front->memories, memory, entry);
		TAILQ_INSERT_TAIL(&front->memories, memory, entry);
		if (!memory->is_leaving && !atomic_load(&memory->base.is_gone))
			return memory;
	}
	return NULL;
}

static uint32_t count(const struct front *front)
{
	const struct front_memory *memory;
	uint32_t n = 0;

	TAILQ_FOREACH(memory, &front->memories, entry)
		n++;
	return n;
}

int front_map_anew(struct front *front, struct child *child, uint32_t *ret_dropped, struct error *err)
{
	struct anew anew = { .front = front, .child = child };
	struct wire_answer result;
	struct front_memory *memory;
	struct error why;
	uint32_t left;
	int r = 0;

	*ret_dropped = 0;
	pthread_mutex_lock(&front->lock);
	left = count(front);
	while (r == 0 && !front->is_closing && (memory = take_next(front, &left))) {
		front->mapping = memory;
		pthread_mutex_unlock(&front->lock);
		r = map_one_anew(front, &anew, memory, &result, &why);
		pthread_mutex_lock(&front->lock);
		front->mapping = NULL;
		pthread_cond_broadcast(&front->changed);
		if (r == 0) {
			memcpy(memory->of_child, result.memory, sizeof memory->of_child);
			atomic_store(&memory->life, child->life);
		} else if (r != STATUS_DEVICE_LOST || anew.is_late) {
			memset(memory->of_child, 0, sizeof memory->of_child);
			atomic_store(&memory->base.is_gone, true);
			++*ret_dropped;
			r = anew.is_late ? r : 0;
		}
	}
	pthread_mutex_unlock(&front->lock);
	if (r < 0)
		*err = why;
	return r;
}

/* ---- Unmapping ---------------------------------------------------------------------------------------- */

/* Returns the child that has the memory, with a reference for the caller, or NULL if none has it any more.
 * The memory is not mapped again from now on. */
static struct child *child_with(struct front *front, struct front_memory *memory)
{
	struct child *child = NULL;

	pthread_mutex_lock(&front->lock);
	memory->is_leaving = true;
	while (front->mapping == memory)
		pthread_cond_wait(&front->changed, &front->lock);
	if (front->child && front->child->life == atomic_load(&memory->life))
		child = child_ref(front->child);
	pthread_mutex_unlock(&front->lock);
	return child;
}

bool front_unmap(struct engine *engine, struct engine_memory *base)
{
	struct front *front = front_of(engine);
	struct front_memory *memory = front_memory_of(base);
	struct child *child = child_with(front, memory);
	const bool is_step = child != NULL;

	if (child && memory->host && !host_memory_is_free(memory->host)) {
		child_unref(child);
		return false;
	}
	if (child && unmap_step_in_child(child, memory->number, NULL))
		atomic_store(&memory->life, 0);
	child_unref(child);
	if (is_step && (memory->host || atomic_load(&memory->life)))
		return false;
	if (memory->host && !host_memory_unmap_step(memory->host))
		return false;
	memory->host = NULL;
	pthread_mutex_lock(&front->lock);
	TAILQ_REMOVE(&front->memories, memory, entry);
	pthread_mutex_unlock(&front->lock);
	free_memory(front, memory);
	return true;
}

/* ---- Links -------------------------------------------------------------------------------------------- */

void front_link(struct engine *engine, const char *uuid, struct engine_link *ret)
{
	struct child_call call = { .call = { .kind = WIRE_LINK, .memory = 0 }, .fd = -1 };
	struct wire_answer result;
	struct error ignored;
	struct child *child = front_child(front_of(engine), &ignored);

	if (!child)
		return;
	snprintf((char *)call.call.handle, sizeof call.call.handle, "%s", uuid);
	if (child_do(child, &call, &result, NULL, &ignored) == 0)
		*ret = result.link;
	child_unref(child);
}
