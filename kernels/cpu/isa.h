/* The inner loops that exist once for each instruction set, and the choice among them at run time.
 *
 * Sizes of elements are given as their binary logarithm, `shift`: 1, 2, 4, 8, 16 bytes are 0 .. 4. No
 * function needs any alignment unless it says so, and none reads or writes a byte outside what it is given.
 */
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include <stddef.h>
#include <stdint.h>

#define CPU_LINE   64 /* bytes of a cache line */
#define CPU_SHIFTS 5

/* A transpose of one strip: dst[c][r] = src[r][c]. Rows of src that lie src_pitch bytes apart are cut into
 * groups of 16 bytes; each group gives 16 / element rows of dst, dst_pitch bytes apart. */
typedef void cpu_strip_fn(char *dst, int64_t dst_pitch, const char *src, int64_t src_pitch, int64_t groups);

struct cpu_isa {
	const char *name;

	/* From 64 / element rows of src: each row of dst gets 64 bytes. */
	cpu_strip_fn *strip[CPU_SHIFTS];
	/* The same past the cache. dst and dst_pitch are multiples of 64. */
	cpu_strip_fn *strip_stream[CPU_SHIFTS];
	/* From 16 / element rows of src: each row of dst gets 16 bytes. */
	cpu_strip_fn *narrow[CPU_SHIFTS];

	/* n elements of dst ascending from elements of src descending from the one at src. */
	void (*reverse[CPU_SHIFTS])(char *dst, const char *src, int64_t n);

	/* Whole lines past the cache; dst is a multiple of 64. fill_lines repeats the line. */
	void (*copy_lines)(char *dst, const char *src, int64_t lines);
	void (*fill_lines)(char *dst, const char *line, int64_t lines);

	/* Orders what went past the cache before whatever the thread writes next. */
	void (*fence)(void);
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
