/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between tensors of this process's host memory, such as into the staging buffer and out of it. Copy
 * loops follow the order in which the destination lies in memory, and dimensions that are one run on both
 * sides are merged into one loop. */
#include "core.h"

#include <string.h>

struct loop {
	int64_t extent;
	int64_t dst; /* bytes from one iteration to the next */
	int64_t src;
};

static int64_t magnitude(int64_t x)
{
	return x < 0 ? -x : x;
}

/* Sets loops, outermost first, and returns their number. size is the bytes of an element. */
static int make_loops(const struct py_tensor *dst, const struct py_tensor *src, int64_t size,
                      struct loop *loops)
{
	int n = 0, kept = 0;

	for (int d = 0; d < dst->rank; d++) {
		struct loop loop = { dst->shape[d], dst->strides[d] * size, src->strides[d] * size };
		int i = n;

		if (loop.extent == 1)
			continue;
		for (; i > 0 && magnitude(loops[i - 1].dst) < magnitude(loop.dst); i--)
			loops[i] = loops[i - 1];
		loops[i] = loop;
		n++;
	}
	for (int i = 0; i < n; i++) {
		struct loop *outer = kept ? &loops[kept - 1] : NULL;

		if (outer && outer->dst == loops[i].dst * loops[i].extent &&
		    outer->src == loops[i].src * loops[i].extent)
			*outer = (struct loop){ outer->extent * loops[i].extent, loops[i].dst, loops[i].src };
		else
			loops[kept++] = loops[i];
	}
	return kept;
}

#define COPY_RUN(type)                                                                 \
	for (int64_t i = 0; i < loop->extent; i++, dst += loop->dst, src += loop->src) \
		memcpy(dst, src, sizeof(type));

static void copy_run(char *dst, const char *src, const struct loop *loop, int64_t size)
{
	if (loop->dst == size && loop->src == size) {
		memcpy(dst, src, (size_t)(loop->extent * size));
		return;
	}
	switch (size) {
	case 1:
		COPY_RUN(uint8_t)
		break;
	case 2:
		COPY_RUN(uint16_t)
		break;
	case 4:
		COPY_RUN(uint32_t)
		break;
	case 8:
		COPY_RUN(uint64_t)
		break;
	default:
		COPY_RUN(uint64_t[2])
	}
}

static void copy_loops(char *dst, const char *src, const struct loop *loops, int n, int64_t size)
{
	if (n == 1) {
		copy_run(dst, src, loops, size);
		return;
	}
	for (int64_t i = 0; i < loops->extent; i++)
		copy_loops(dst + i * loops->dst, src + i * loops->src, loops + 1, n - 1, size);
}

void copy_tensor(const struct py_tensor *dst, const struct py_tensor *src)
{
	const int64_t size = (int64_t)tma_dtype_size(dst->dtype);
	struct loop loops[TMA_MAX_RANK];
	int n;

	if (py_tensor_count(dst) == 0)
		return;
	n = make_loops(dst, src, size, loops);
	if (n == 0)
		memcpy(dst->data, src->data, (size_t)size);
	else
		copy_loops(dst->data, src->data, loops, n, size);
}

void copy_blocks(const struct py_tensor *dst, const struct py_tensor *src, int axis,
                 const struct block_numbers *index, int64_t count, bool is_scatter)
{
	const int64_t size = (int64_t)tma_dtype_size(dst->dtype);
	struct py_tensor to = *dst, from = *src;
	struct loop loops[TMA_MAX_RANK];
	int n;

	to.shape[axis] = from.shape[axis] = 1;
	if (py_tensor_count(&to) == 0)
		return;
	n = make_loops(&to, &from, size, loops);
	for (int64_t i = 0; i < count; i++) {
		const int64_t number = block_number(index, i);
		char *at = dst->data + (is_scatter ? number : i) * dst->strides[axis] * size;
		const char *of = src->data + (is_scatter ? i : number) * src->strides[axis] * size;

		if (n == 0)
			memcpy(at, of, (size_t)size);
		else
			copy_loops(at, of, loops, n, size);
	}
}
