/* SPDX-License-Identifier: Apache-2.0 */
/* Rings. The writer advances its position after it has written bytes, the reader after it has read them. */
#include "shared.h"

#include <string.h>
#include <sys/mman.h>

bool ring_map(struct ring *ring, struct ring_positions *positions, int fd, uint64_t offset)
{
	const int flags = MAP_SHARED | MAP_FIXED;
	char *room = mmap(NULL, 2 * RING_ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		return false;
	for (size_t i = 0; i < 2; i++)
		if (mmap(room + i * RING_ROOM, RING_ROOM, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset) ==
		    MAP_FAILED) {
			munmap(room, 2 * RING_ROOM);
			return false;
		}
	*ring = (struct ring){ .positions = positions, .data = room };
	return true;
}

void ring_unmap(struct ring *ring)
{
	if (ring->data)
		munmap(ring->data, 2 * RING_ROOM);
	*ring = (struct ring){ 0 };
}

static size_t room_after(const struct ring *ring, uint64_t written)
{
	const uint64_t used = written - atomic_load(&ring->positions->read);

	return used < RING_ROOM ? RING_ROOM - (size_t)used : 0;
}

size_t ring_write(struct ring *ring, const void *data, size_t size)
{
	const uint64_t written = atomic_load_explicit(&ring->positions->written, memory_order_relaxed);
	const size_t room = room_after(ring, written);
	const size_t n = size < room ? size : room;

	if (n == 0)
		return 0;
	memcpy(ring->data + written % RING_ROOM, data, n);
	atomic_store(&ring->positions->written, written + n);
	return n;
}

/* Each side sets its own flag or position before it looks at the other's, so that a wake-up cannot be
 * missed. */
bool ring_wait_for_room(struct ring *ring)
{
	atomic_store(&ring->positions->is_waited_for, true);
	if (room_after(ring, atomic_load_explicit(&ring->positions->written, memory_order_relaxed)) == 0)
		return true;
	atomic_store(&ring->positions->is_waited_for, false);
	return false;
}

const char *ring_peek(const struct ring *ring, size_t *ret_size)
{
	const uint64_t read = atomic_load_explicit(&ring->positions->read, memory_order_relaxed);

	*ret_size = (size_t)(atomic_load(&ring->positions->written) - read);
	return ring->data + read % RING_ROOM;
}

bool ring_drop(struct ring *ring, size_t size)
{
	const uint64_t read = atomic_load_explicit(&ring->positions->read, memory_order_relaxed);

	atomic_store(&ring->positions->read, read + size);
	return atomic_load(&ring->positions->is_waited_for) &&
	       atomic_exchange(&ring->positions->is_waited_for, false);
}
