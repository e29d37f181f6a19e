/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops, in one version for each instruction set, and the choice of a version at run time.
 *
 * Sizes of elements are given as their binary logarithm, `shift`: 1, 2, 4, 8, 16 bytes are 0 .. 4. No
 * function needs any alignment unless its comment says so, and none reads or writes a byte outside of what it
 * is given.
 */
#ifndef KERNELS_CPU_ISA_ISA_H
#define KERNELS_CPU_ISA_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/tensor.h"

#define CPU_LINE   64 /* bytes of a cache line */
#define CPU_SHIFTS 5

/* ---- Elements of any type to numbers to calculate with, and back ------------------------------------ */

/* Type of lanes. A row is converted block by block: from elements of one type to lanes, which all have one
 * type, and from the lanes to elements of another type. In between, lanes may be multiplied and added to.
 * Buffers of lanes must be aligned to CPU_LINE and have CPU_LINE bytes more than their lanes need, because
 * loops may use those. */
enum cpu_lane {
	CPU_LANE_FLOAT32, /* holds every value of float32 and of types of up to 16 bits */
	CPU_LANE_FLOAT64, /* rounds 64-bit integers, to nearest even or to odd */
	/* Used between integer types; larger values become the largest int64, unless the conversion wraps. */
	CPU_LANE_INT64,
	CPU_LANES
};

/* A load converts n elements at src to lanes, and a store converts n lanes to elements at dst. Stores to
 * floating types round to nearest even, and stores to integers round towards zero. A value beyond an integer
 * type becomes the type's nearest value, and NaN becomes 0. A bool becomes true if the value is not 0. */
typedef void cpu_load_fn(void *lanes, const char *src, int64_t n);
typedef void cpu_store_fn(char *dst, const void *lanes, int64_t n);

/* Computes to = a op b for n lanes, each rounded to nearest even. `to` may be a. Returns whether any of the
 * results is NaN. */
typedef bool cpu_arithmetic_fn(void *to, const void *a, const void *b, int64_t n);

/* Returns the largest magnitude of n elements of a floating type, as an integer: the bits of an element
 * without its sign. By these integers NaN is above infinity, and infinity above all numbers. */
typedef uint32_t cpu_magnitude_fn(const char *src, int64_t n);

struct cpu_converters {
	cpu_load_fn *load[CPU_LANES][DTYPE_COUNT]; /* NULL: lanes cannot hold the type */
	cpu_load_fn *load_lossy[DTYPE_COUNT];      /* used instead of `load` if the conversion is_lossy */
	cpu_store_fn *store[CPU_LANES][DTYPE_COUNT];
	/* Limits values to the finite ones of the type. NaN stays NaN. */
	cpu_store_fn *store_clamped[CPU_LANES][DTYPE_COUNT];
	cpu_store_fn *store_wrapped[DTYPE_COUNT]; /* keeps the low bits of int64 lanes */
	cpu_arithmetic_fn *multiply[CPU_LANES];   /* for floating-point lanes only */
	bool (*multiply_by)(void *to, const void *a, float by, int64_t n); /* for float32 lanes only */
	cpu_arithmetic_fn *add[CPU_LANES];
	/* Makes the NaNs among the results of an operation on a and b the same on all machines, because
	 * machines and compilers differ in them. A NaN of a, or else of b, is kept and made quiet; one that
	 * the operation itself has produced gets its sign set. */
	void (*mend[CPU_LANES])(void *to, const void *a, const void *b, int64_t n);
	/* Computes most = max(most, |lanes|) as integers for n lanes of float32, and for what follows them up
	 * to the end of their last vector. */
	void (*magnitudes)(void *most, const void *lanes, int64_t n);
	/* NULL: the type is not a floating type of up to 32 bits. */
	cpu_magnitude_fn *magnitude[DTYPE_COUNT];
};

/* ---- Moves ------------------------------------------------------------------------------------------ */

/* A vector of 16 bytes, which the compiler emulates on machines that have none. */
typedef uint8_t vec16 __attribute__((vector_size(16)));

/* Transposes one strip: dst[c][r] = src[r][c]. Rows of src, which lie src_pitch bytes apart, are cut into
 * groups of 16 bytes. Each group gives 16 / element rows of dst, which lie dst_pitch bytes apart. next is
 * where the next strip begins in src, so that its first lines can be prefetched, or NULL if there is none. */
typedef void cpu_strip_fn(char *dst, int64_t dst_pitch, const char *src, int64_t src_pitch, int64_t groups,
                          const char *next);

/* Lines that are to be prefetched because they are needed soon: `bytes` bytes from each of the n places src +
 * offset[i]. The first i places, and the first `at` bytes of place i, have been prefetched already. */
struct cpu_fetch {
	const char *src;
	const int64_t *offset;
	int64_t n, bytes;
	int64_t i, at;
};

/* Transposes a panel, which is a box whose rows and columns lie at places given by tables: element (r, c)
 * goes from src + col[c] + r * element to dst + row[r] + c * element. rows and cols are at least 16 /
 * element. For each line that is moved, one line that *fetch names is prefetched. */
typedef void cpu_panel_fn(char *dst, const int64_t *row, const char *src, const int64_t *col, int64_t rows,
                          int64_t cols, struct cpu_fetch *fetch);

/* Does the same for a panel that is in no cache. next is the src of the next panel with the same table, whose
 * first lines are prefetched, or NULL if there is none. */
typedef void cpu_far_panel_fn(char *dst, const int64_t *row, const char *src, const int64_t *col,
                              int64_t rows, int64_t cols, const char *next);

/* Permutes bytes arbitrarily: each 16 bytes of dst are assembled from `windows` windows of 16 bytes of src. A
 * step describes one window, which begins at src + offset. For each byte of dst, its mask has the position of
 * that byte in the window, or 0x80 if the byte comes from another window or from fill. fill is NULL or has 16
 * bytes for every 16 of dst, with 0 for the bytes that come from windows. The last 16 bytes may overlap those
 * before them; bytes is at least 16. */
struct cpu_shuffle_step {
	uint8_t mask[16];
	int64_t offset;
};
struct cpu_shuffle {
	int64_t bytes, windows;
	const struct cpu_shuffle_step *step;
	const uint8_t *fill;
};

/* Transposes rows at arbitrary places: dst[r][c] = src[c][r]. Row r of dst, which has cols elements, is at
 * dst + dst_at[r]; row c of src, which has rows elements, is at src + src_at[c]. Readable memory ends at
 * `end`; any byte between a row of src and `end` may be read. */
typedef void cpu_tables_fn(char *dst, const int32_t *dst_at, int64_t rows, const char *src,
                           const int32_t *src_at, int64_t cols, const char *end);

/* Writes rows in parts, in whole lines that bypass the cache. `part` says whether this is a row's first or
 * last part, or both. The next n bytes of each of `rows` rows of dst are taken from stage, where the rows lie
 * pitch bytes apart with CPU_LINE bytes after each that may be read. If a part ends within a line, the start
 * of that line is kept in room, which has a line for each row, until the next part completes it and writes
 * the whole line. n is at least CPU_LINE, except for a row's last part. */
enum cpu_part {
	CPU_PART_FIRST = 1,
	CPU_PART_LAST = 2,
};
typedef void cpu_flush_fn(char *dst, int64_t dst_pitch, const char *stage, int64_t pitch, int64_t rows,
                          int64_t n, char *room, unsigned part);

struct cpu_isa {
	const char *name;
	int vector; /* bytes that one instruction stores */

	/* Transposes 64 / element rows of src. Each row of dst gets 64 bytes. */
	cpu_strip_fn *strip[CPU_SHIFTS];
	/* Does the same past the cache. dst and dst_pitch must be multiples of 64. */
	cpu_strip_fn *strip_stream[CPU_SHIFTS];
	/* Transposes 16 / element rows of src. Each row of dst gets 16 bytes. */
	cpu_strip_fn *narrow[CPU_SHIFTS];

	cpu_panel_fn *panel[CPU_SHIFTS];
	void (*shuffle)(char *dst, const char *src, const struct cpu_shuffle *shuffle);
	cpu_far_panel_fn *far_panel[CPU_SHIFTS];
	/* There is one for each size of elements below 16 bytes. */
	cpu_tables_fn *tables[CPU_SHIFTS - 1];

	/* Writes n elements of dst in ascending order from elements of src in descending order, beginning
	 * with the element at src. */
	void (*reverse[CPU_SHIFTS])(char *dst, const char *src, int64_t n);

	/* Take pixels apart, or assemble them. A pixel has 2 or more channels, each an element of less than
	 * 16 bytes, and at most 16 bytes in all. split writes channel c of the n pixels at src to dst +
	 * row[c]; merge reads channel c of the n pixels at dst from src + col[c]. n must be at least CPU_LINE
	 * / element. */
	void (*split[CPU_SHIFTS - 1])(char *dst, const int64_t *row, const char *src, int64_t channels,
	                              int64_t n);
	void (*merge[CPU_SHIFTS - 1])(char *dst, const char *src, const int64_t *col, int64_t channels,
	                              int64_t n);

	/* These functions write whole lines past the cache; dst must be a multiple of 64. fill_lines repeats
	 * one line. copy_lines also prefetches the lines `ahead` bytes after those of src, because they will
	 * be copied next; if ahead is 0, it prefetches nothing. */
	void (*copy_lines)(char *dst, const char *src, int64_t lines, int64_t ahead);
	void (*fill_lines)(char *dst, const char *line, int64_t lines);

	cpu_flush_fn *flush;

	/* Prefetches the lines of n_dst bytes that will be written and of n_src bytes that will be read,
	 * alternately, and does not wait. They should fit into the first-level cache, because the CPU drops
	 * prefetches that it cannot start at once. Unmapped memory is ignored. */
	void (*fetch)(const char *dst, int64_t n_dst, const char *src, int64_t n_src);

	/* Orders writes that went past the cache before all later writes of the thread. */
	void (*fence)(void);

	const struct cpu_converters *converters;
};

enum cpu_isa_level {
	CPU_ISA_PLAIN, /* plain C, for any machine */
	CPU_ISA_AVX2,
	CPU_ISA_AVX512,
	CPU_ISA_NEON,
	CPU_ISA_LEVELS
};

/* Returns the inner loops of a level, or NULL if this machine or this build does not have it. */
const struct cpu_isa *cpu_isa_get(enum cpu_isa_level level);

/* Returns the inner loops of the highest level that this machine and build have. */
const struct cpu_isa *cpu_isa_best(void);

extern const struct cpu_isa cpu_isa_plain;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512;
extern const struct cpu_isa cpu_isa_neon;

/* Copies n = 1 .. 64 bytes, inlined, by two overlapping moves of one size, or by several of 16 bytes. Touches
 * nothing beyond the n bytes. */
static inline void copy_short(char *dst, const char *src, uint32_t n)
{
	char a[16], b[16];
#define ENDS(size)                         \
	memcpy(a, src, size);              \
	memcpy(b, src + n - (size), size); \
	memcpy(dst, a, size);              \
	memcpy(dst + n - (size), b, size)
	if (n >= 16) {
		for (uint32_t i = 0; i + 16 < n; i += 16)
			memcpy(dst + i, src + i, 16);
		memcpy(dst + n - 16, src + n - 16, 16);
	} else if (n >= 8) {
		ENDS(8);
	} else if (n >= 4) {
		ENDS(4);
	} else if (n >= 2) {
		ENDS(2);
	} else {
		*dst = *src;
	}
#undef ENDS
}

#endif
