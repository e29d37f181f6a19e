/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops that exist once for each instruction set, and the choice among them at run time.
 *
 * Sizes of elements are given as their binary logarithm, `shift`: 1, 2, 4, 8, 16 bytes are 0 .. 4. No
 * function needs any alignment unless it says so, and none reads or writes a byte outside what it is given.
 */
#ifndef KERNELS_CPU_ISA_ISA_H
#define KERNELS_CPU_ISA_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "converters.h"

#define CPU_LINE   64 /* bytes of a cache line */
#define CPU_SHIFTS 5

/* The vector that every machine has, if only by name. */
typedef uint8_t vec16 __attribute__((vector_size(16)));

/* A transpose of one strip: dst[c][r] = src[r][c]. Rows of src that lie src_pitch bytes apart are cut into
 * groups of 16 bytes; each group gives 16 / element rows of dst, dst_pitch bytes apart. next is where the
 * strip after this one begins in src, for its first lines to be fetched; NULL when there is none. */
typedef void cpu_strip_fn(char *dst, int64_t dst_pitch, const char *src, int64_t src_pitch, int64_t groups,
                          const char *next);

/* Lines that are needed soon: so many bytes from each of the n places, of which the first i and `at` bytes
 * have been asked for. */
struct cpu_fetch {
	const char *src;
	const int64_t *offset;
	int64_t n, bytes;
	int64_t i, at;
};

/* A transpose from and to where tables say: element (r, c) goes from src + col[c] + r * element to
 * dst + row[r] + c * element. rows and cols are at least 16 / element. A line is fetched for each that is
 * moved. */
typedef void cpu_panel_fn(char *dst, const int64_t *row, const char *src, const int64_t *col, int64_t rows,
                          int64_t cols, struct cpu_fetch *fetch);

/* The same from memory that is in no cache. next is where the panel after this one begins, with the same
 * table; NULL when there is none. */
typedef void cpu_far_panel_fn(char *dst, const int64_t *row, const char *src, const int64_t *col,
                              int64_t rows, int64_t cols, const char *next);

/* Any permutation of bytes: each 16 bytes of dst are put together from as many windows of 16 bytes of src.
 * mask says which byte of the window a byte is, 0x80 where it is of another, or of fill: that has 16 bytes
 * for each step's, 0 where they are of windows, or is NULL. The last 16 bytes may overlap those before them;
 * bytes is at least 16. */
struct cpu_shuffle_step {
	uint8_t mask[16];
	int64_t offset;
};
struct cpu_shuffle {
	int64_t bytes, windows;
	const struct cpu_shuffle_step *step;
	const uint8_t *fill;
};

/* A transpose of rows that lie anywhere: dst[r][c] = src[c][r]. Row r of dst, cols elements, is at dst +
 * dst_at[r]; row c of src, rows elements, at src + src_at[c]. Between a row of src and end, which is where
 * memory that may be read ends, any byte may be read. */
typedef void cpu_tables_fn(char *dst, const int32_t *dst_at, int64_t rows, const char *src,
                           const int32_t *src_at, int64_t cols, const char *end);

/* Rows that are written in parts, line by line past the cache: the next n bytes of each of `rows` rows of dst
 * lie in stage, pitch bytes apart, with CPU_LINE bytes after them that may be read. What a part leaves of its
 * last line is kept in room, a line for each row, so that the next part finds it there and writes the line
 * whole. n is at least CPU_LINE, but for a part that is the row's last. */
enum cpu_part {
	CPU_PART_FIRST = 1,
	CPU_PART_LAST = 2,
};
typedef void cpu_flush_fn(char *dst, int64_t dst_pitch, const char *stage, int64_t pitch, int64_t rows,
                          int64_t n, char *room, unsigned part);

struct cpu_isa {
	const char *name;
	int vector; /* bytes that one instruction stores */

	/* From 64 / element rows of src: each row of dst gets 64 bytes. */
	cpu_strip_fn *strip[CPU_SHIFTS];
	/* The same past the cache. dst and dst_pitch are multiples of 64. */
	cpu_strip_fn *strip_stream[CPU_SHIFTS];
	/* From 16 / element rows of src: each row of dst gets 16 bytes. */
	cpu_strip_fn *narrow[CPU_SHIFTS];

	cpu_panel_fn *panel[CPU_SHIFTS];
	void (*shuffle)(char *dst, const char *src, const struct cpu_shuffle *shuffle);
	cpu_far_panel_fn *far_panel[CPU_SHIFTS];
	/* Elements of less than 16 bytes. */
	cpu_tables_fn *tables[CPU_SHIFTS - 1];

	/* n elements of dst ascending from elements of src descending from the one at src. */
	void (*reverse[CPU_SHIFTS])(char *dst, const char *src, int64_t n);

	/* Pixels of 2 or more channels, an element of less than 16 bytes each, 16 bytes at most in all.
	 * split: channel c of the n pixels at src goes to dst + row[c]; merge: the other way. n is at least
	 * CPU_LINE / element. */
	void (*split[CPU_SHIFTS - 1])(char *dst, const int64_t *row, const char *src, int64_t channels,
	                              int64_t n);
	void (*merge[CPU_SHIFTS - 1])(char *dst, const char *src, const int64_t *col, int64_t channels,
	                              int64_t n);

	/* Whole lines past the cache; dst is a multiple of 64. fill_lines repeats the line. The lines that
	 * lie ahead bytes after those of src will be copied next, and are asked for meanwhile; 0: none. */
	void (*copy_lines)(char *dst, const char *src, int64_t lines, int64_t ahead);
	void (*fill_lines)(char *dst, const char *line, int64_t lines);

	cpu_flush_fn *flush;

	/* Asks for the lines of n_dst bytes that will be written and of n_src that will be read, in turns,
	 * and does not wait. Not more than fit the first cache: the machine forgets what it cannot ask for at
	 * once. Memory that is not there does nothing. */
	void (*fetch)(const char *dst, int64_t n_dst, const char *src, int64_t n_src);

	/* Orders what went past the cache before whatever the thread writes next. */
	void (*fence)(void);

	const struct cpu_converters *converters;
};

enum cpu_isa_level {
	CPU_ISA_PLAIN, /* any machine that C runs on */
	CPU_ISA_AVX2,
	CPU_ISA_AVX512,
	CPU_ISA_NEON,
	CPU_ISA_LEVELS
};

/* NULL when this machine, or this build, does not have the level. */
const struct cpu_isa *cpu_isa_get(enum cpu_isa_level level);

/* The highest level that there is. */
const struct cpu_isa *cpu_isa_best(void);

extern const struct cpu_isa cpu_isa_plain;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512;
extern const struct cpu_isa cpu_isa_neon;

#endif
