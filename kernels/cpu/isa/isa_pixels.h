/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over pixels of a few channels; a part of isa_body.h.
 *
 * A pixel of `channels` elements, at most 16 bytes, is given C elements of room, the next power of two. C
 * registers of N = 16 / element elements a lane then hold N pixels, one after the other, and a round (as in
 * isa_body.h) moves element j of that sequence to 2 j, or in its second half to 2 j + 1 - C N. log2(N) rounds
 * bring [pixel][channel] to [channel][pixel], log2(C) rounds bring it back. The room is made and closed by a
 * shuffle of the 16 bytes that are loaded or stored at a time; those that are stored reach into the next
 * pixel, which is stored after them.
 */

/* Bytes of a lane that take 16 / room pixels of `pixel` bytes to `room` bytes each, or back. */
static inline vec16 pixel_mask(uint32_t pixel, uint32_t room, bool wider)
{
	vec16 mask;
	for (uint32_t b = 0; b < 16; b++) {
		uint32_t from = wider ? pixel : room, to = wider ? room : pixel;
		uint32_t at = b / to * from + b % to;
		mask[b] = b % to < from && b / to < 16 / room ? (uint8_t)at : 0x80;
	}
	return mask;
}

#define PIXEL_ROUNDS(element, c, n) \
	UNROLL for (int round = 1; round < (n); round *= 2) ROUND(VECTOR, c, LOW##element, HIGH##element)

/* A line of each row of dst: from CPU_LINE / element pixels and what the last 16 bytes hold beside. */
#define DEFINE_SPLIT_BLOCK(element, C)                                                         \
	static inline TARGET void split_block_##element##_##C(                                 \
	    char *dst, const int64_t *row, const char *src, int64_t channels, VECTOR mask)     \
	{                                                                                      \
		enum { N = 16 / (element) };                                                   \
		int64_t group = N / (C)*channels * (element);                                  \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                     \
		{                                                                              \
			VECTOR v[C];                                                           \
			UNROLL for (int i = 0; i < (C); i++)                                   \
			{                                                                      \
				const char *p = src + (part * (WIDTH / 16) * (C) + i) * group; \
				v[i] = SHUFFLE(GATHER(p, (C)*group), mask);                    \
			}                                                                      \
			PIXEL_ROUNDS(element, C, N);                                           \
			UNROLL for (int i = 0; i < (C); i++) if (i < channels)                 \
			    STORE(dst + row[i] + part * WIDTH, v[i]);                          \
		}                                                                              \
	}

/* CPU_LINE / element pixels, and up to 16 bytes after them. */
#define DEFINE_MERGE_BLOCK(element, C)                                                                      \
	static inline TARGET void merge_block_##element##_##C(                                              \
	    char *dst, const char *src, const int64_t *col, int64_t channels, VECTOR mask)                  \
	{                                                                                                   \
		enum { N = 16 / (element) };                                                                \
		int64_t group = N / (C)*channels * (element);                                               \
		UNROLL for (int part = 0; part < CPU_LINE / WIDTH; part++)                                  \
		{                                                                                           \
			VECTOR v[C];                                                                        \
			char block[(C)*WIDTH] __attribute__((aligned(CPU_LINE)));                           \
			UNROLL for (int i = 0; i < (C); i++) v[i] =                                         \
			    load_vector(src + col[i < channels ? i : 0] + part * WIDTH);                    \
			PIXEL_ROUNDS(element, C, C);                                                        \
			UNROLL for (int i = 0; i < (C); i++) STORE(block + i * WIDTH, SHUFFLE(v[i], mask)); \
			UNROLL for (int lane = 0; lane < WIDTH / 16; lane++)                                \
			    UNROLL for (int i = 0; i < (C); i++, dst += group)                              \
				store16(dst, load16(block + i * WIDTH + lane * 16));                        \
		}                                                                                           \
	}

/* All pixels, block by block. What is read or written past a block is less than 8 bytes, so less than 8
 * pixels; the last blocks, which may overlap, go by way of a copy. */
#define EACH_BLOCK(element, n, direct, by_copy)                 \
	do {                                                    \
		enum { BLOCK = CPU_LINE / (element) };          \
		int64_t at = 0, last = (n)-BLOCK;               \
		for (; at + BLOCK + 8 <= (n); at += BLOCK) {    \
			direct;                                 \
		}                                               \
		at = at < last ? at : last;                     \
		for (; at < (n); at = at < last ? last : (n)) { \
			char copy[BLOCK * 16 + 16];             \
			by_copy;                                \
		}                                               \
	} while (0)

#define DEFINE_PIXELS(element, C)                                                                         \
	DEFINE_SPLIT_BLOCK(element, C)                                                                    \
	DEFINE_MERGE_BLOCK(element, C)                                                                    \
	static TARGET void split_##element##_##C(char *dst, const int64_t *row, const char *src,          \
	                                         int64_t channels, int64_t n)                             \
	{                                                                                                 \
		int64_t pixel = channels * (element);                                                     \
		vec16 lane = pixel_mask((uint32_t)pixel, (C) * (element), true);                          \
		VECTOR mask = GATHER((const char *)&lane, 0);                                             \
		EACH_BLOCK(element, n,                                                                    \
		           split_block_##element##_##C(dst + at * (element), row, src + at * pixel,       \
		                                       channels, mask),                                   \
		           memcpy(copy, src + at * pixel, (size_t)(BLOCK * pixel));                       \
		           split_block_##element##_##C(dst + at * (element), row, copy, channels, mask)); \
	}                                                                                                 \
	static TARGET void merge_##element##_##C(char *dst, const char *src, const int64_t *col,          \
	                                         int64_t channels, int64_t n)                             \
	{                                                                                                 \
		int64_t pixel = channels * (element);                                                     \
		vec16 lane = pixel_mask((uint32_t)pixel, (C) * (element), false);                         \
		VECTOR mask = GATHER((const char *)&lane, 0);                                             \
		EACH_BLOCK(element, n,                                                                    \
		           merge_block_##element##_##C(dst + at * pixel, src + at * (element), col,       \
		                                       channels, mask),                                   \
		           merge_block_##element##_##C(copy, src + at * (element), col, channels, mask);  \
		           memcpy(dst + at * pixel, copy, (size_t)(BLOCK * pixel)));                      \
	}

DEFINE_PIXELS(1, 2)
DEFINE_PIXELS(1, 4)
DEFINE_PIXELS(1, 8)
DEFINE_PIXELS(1, 16)
DEFINE_PIXELS(2, 2)
DEFINE_PIXELS(2, 4)
DEFINE_PIXELS(2, 8)
DEFINE_PIXELS(4, 2)
DEFINE_PIXELS(4, 4)
DEFINE_PIXELS(8, 2)

#define CHOOSE_1(f, channels) \
	((channels) <= 2 ? f##_1_2 : (channels) <= 4 ? f##_1_4 : (channels) <= 8 ? f##_1_8 : f##_1_16)
#define CHOOSE_2(f, channels) ((channels) <= 2 ? f##_2_2 : (channels) <= 4 ? f##_2_4 : f##_2_8)
#define CHOOSE_4(f, channels) ((channels) <= 2 ? f##_4_2 : f##_4_4)
#define CHOOSE_8(f, channels) f##_8_2

#define DEFINE_CHOICE(element)                                                                        \
	static void split_##element(char *dst, const int64_t *row, const char *src, int64_t channels, \
	                            int64_t n)                                                        \
	{                                                                                             \
		CHOOSE_##element(split, channels)(dst, row, src, channels, n);                        \
	}                                                                                             \
	static void merge_##element(char *dst, const char *src, const int64_t *col, int64_t channels, \
	                            int64_t n)                                                        \
	{                                                                                             \
		CHOOSE_##element(merge, channels)(dst, src, col, channels, n);                        \
	}

DEFINE_CHOICE(1)
DEFINE_CHOICE(2)
DEFINE_CHOICE(4)
DEFINE_CHOICE(8)
