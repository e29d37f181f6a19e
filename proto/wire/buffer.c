/* SPDX-License-Identifier: Apache-2.0 */
/* The growable byte run. Its live bytes are data[start..end); they move to the front, or to a larger
 * block, only when the room behind them is used up, and to the front only when no more bytes move than
 * were consumed since the last move: appending costs amortised constant time. */
#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_MIN_CAP 1024

void buffer_deinit(struct buffer *b)
{
	if (!b)
		return;
	free(b->data);
	*b = (struct buffer){ 0 };
}

uint8_t *buffer_grow(struct buffer *b, size_t len)
{
	size_t live = buffer_len(b);
	size_t cap = b->cap < BUFFER_MIN_CAP ? BUFFER_MIN_CAP : b->cap;
	size_t need;
	uint8_t *data;

	if (__builtin_add_overflow(live, len, &need) || need > SIZE_MAX / 4)
		return NULL;
	if (b->data && need <= b->cap && live <= b->start) {
		memcpy(b->data, b->data + b->start, live);
		b->start = 0;
		b->end = live;
		return b->data + live;
	}
	while (cap < need || cap < 2 * live)
		cap *= 2;
	data = malloc(cap);
	if (!data)
		return NULL;
	if (live)
		memcpy(data, b->data + b->start, live);
	free(b->data);
	*b = (struct buffer){ .data = data, .end = live, .cap = cap };
	return data + live;
}

void buffer_consume(struct buffer *b, size_t len, size_t keep)
{
	b->start += len;
	if (b->start < b->end)
		return;
	b->start = b->end = 0;
	if (b->cap > keep) {
		free(b->data);
		*b = (struct buffer){ 0 };
	}
}

void buffer_truncate(struct buffer *b, size_t len)
{
	b->end = b->start + len;
}
