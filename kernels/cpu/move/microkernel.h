/* SPDX-License-Identifier: Apache-2.0 */
/* A microkernel: the two innermost loops of a move, over `rows` and `cols` units of a box.
 *
 * Unit (r, c) goes from src + r * src_row + c * src_col to dst + r * dst_row + c * dst_col. cols is the
 * dimension with the smallest destination stride. A microkernel touches exactly the bytes of its units.
 */
#ifndef KERNELS_CPU_MOVE_MICROKERNEL_H
#define KERNELS_CPU_MOVE_MICROKERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

/* What widening may rely on: any machine that this runs on reads and writes at any address. */
#define CPU_ALIGN 16

/* A dimension beside the two. */
struct microkernel_dim {
	int64_t n, dst, src;
};

#define MICROKERNEL_DIMS 4

struct microkernel {
	const struct cpu_isa *isa;
	char *scratch; /* NULL: nothing goes past the cache */
	uint32_t unit; /* bytes: an element, or a short contiguous run of them */
	char *dst;
	const char *src;
	int64_t rows, cols;
	int64_t dst_row, dst_col;
	int64_t src_row, src_col;
	int64_t ahead; /* of microkernel_copy alone: bytes from src to where the same is copied from next; 0:
	                  unknown */

	/* Of microkernel_transpose alone. `rows` counts through row_dim too: rows of all of them lie src_row
	 * apart, and in dst each block of row_block rows lies where row_dim says. run says how rows of dst go
	 * on: what its dimensions step over is contiguous there. Innermost first; n_row and n_run are mostly
	 * 0.
	 */
	int64_t row_block;
	int n_row, n_run;
	struct microkernel_dim row_dim[MICROKERNEL_DIMS];
	struct microkernel_dim run[MICROKERNEL_DIMS];
};

typedef void microkernel_fn(const struct microkernel *microkernel);

/* Rows that are contiguous on both sides: dst_col == src_col == unit. */
microkernel_fn microkernel_copy;

/* Each row repeats one unit, its row's: dst_col == unit, src_col == 0, unit 1, 2, 4, 8 or 16. */
microkernel_fn microkernel_repeat;

/* Each row runs backwards in the source: dst_col == unit, src_col == -unit, unit 1, 2, 4, 8 or 16. */
microkernel_fn microkernel_reverse;

/* dst_col == unit, src_row == unit, unit 1, 2, 4, 8 or 16; dst_row and src_col of any sign. */
microkernel_fn microkernel_transpose;

/* Any strides, any unit up to CPU_LINE bytes. */
microkernel_fn microkernel_strided;

/* n contiguous bytes, past the cache where there is scratch and it pays. */
void microkernel_copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n);

static inline int microkernel_shift(uint32_t unit)
{
	return __builtin_ctz(unit);
}

/* Bytes from p up to the next line. */
static inline int64_t microkernel_to_line(const void *p)
{
	return (int64_t)(-(uintptr_t)p % CPU_LINE);
}

#endif
