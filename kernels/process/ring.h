/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from one process to another through memory that both have mapped: one writer, one reader, no lock.
 *
 * A ring is a pipe that holds RING_ROOM. Its data is mapped twice in a row, so that whatever is in it is
 * contiguous. A side that finds it full, or empty, says so and sleeps; how the two wake each other is not the
 * ring's matter (shared.h).
 */
#ifndef KERNELS_PROCESS_RING_H
#define KERNELS_PROCESS_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_ROOM ((size_t)1 << 20)

/* In the shared memory, zeroed at first. Positions only grow. */
struct ring_positions {
	_Alignas(64) atomic_uint_fast64_t read;
	_Alignas(64) atomic_uint_fast64_t written;
	_Alignas(64) atomic_bool is_waited_for; /* the writer wants to be woken once there is room */
};

/* One process's view of it. */
struct ring {
	struct ring_positions *positions;
	char *data;
};

/* Maps the RING_ROOM of the file from offset on, a multiple of the page; false: out of memory. */
bool ring_map(struct ring *ring, struct ring_positions *positions, int fd, uint64_t offset);
void ring_unmap(struct ring *ring); /* of a zeroed one: nothing */

/* The writer's: as many bytes as there is room for; returns how many. */
size_t ring_write(struct ring *ring, const void *data, size_t size);

/* The writer's, after a write of less than all: false: there is room again. */
bool ring_wait_for_room(struct ring *ring);

/* The reader's: what has been written and not been dropped; the pointer is good until it is dropped. */
const char *ring_peek(const struct ring *ring, size_t *ret_size);

/* The reader's. Returns whether the writer waits for room. */
bool ring_drop(struct ring *ring, size_t size);

static inline bool ring_is_empty(const struct ring *ring)
{
	return atomic_load(&ring->positions->written) ==
	       atomic_load_explicit(&ring->positions->read, memory_order_relaxed);
}

#endif
