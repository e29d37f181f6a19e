/* SPDX-License-Identifier: Apache-2.0 */
/* A microkernel runs the two innermost loops of a move, over `rows` and `cols` units of a box.
 *
 * Unit (r, c) goes from src + r * src_row + c * src_col to dst + r * dst_row + c * dst_col. cols counts along
 * the dimension with the smallest destination stride. A microkernel touches exactly the bytes of its
 * units.
 */
#ifndef KERNELS_CPU_MOVE_MICROKERNEL_H
#define KERNELS_CPU_MOVE_MICROKERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

/* Maximum size in bytes to which elements may be widened, whatever their addresses, because every supported
 * machine reads and writes at any address. */
#define CPU_ALIGN 16

/* A dimension besides rows and columns: its extent, and its strides in bytes. */
struct microkernel_dim {
	int64_t n, dst, src;
};

#define MICROKERNEL_DIMS 4

struct microkernel {
	const struct cpu_isa *isa;
	char *scratch; /* NULL: nothing is written past the cache */
	uint32_t unit; /* bytes of a unit: an element, or a short contiguous run of elements */
	char *dst;
	const char *src;
	int64_t rows, cols;
	int64_t dst_row, dst_col;
	int64_t src_row, src_col;
	/* Used only by copies: bytes from src to where the next copy will read. 0: unknown. */
	int64_t ahead;

	/* Used only by transposes. `rows` counts through row_dim too: all rows lie src_row apart in the
	 * source, while in dst each block of row_block rows lies where row_dim says. `run` lists the
	 * dimensions by which rows of dst continue contiguously. Both lists are innermost first; n_row and
	 * n_run are mostly 0. */
	int64_t row_block;
	int n_row, n_run;
	struct microkernel_dim row_dim[MICROKERNEL_DIMS];
	struct microkernel_dim run[MICROKERNEL_DIMS];
};

typedef void microkernel_fn(const struct microkernel *microkernel);

/* Repeats one unit in each row. dst_col == unit, src_col == 0, and unit is 1, 2, 4, 8 or 16. */
microkernel_fn microkernel_repeat;

/* Copies n contiguous bytes. If there is scratch and n is large enough, they bypass the cache. */
void microkernel_copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n);

static inline int microkernel_shift(uint32_t unit)
{
	return __builtin_ctz(unit);
}

/* Returns the number of bytes from p to the next start of a cache line; 0 if p is at the start of one. */
static inline int64_t microkernel_to_line(const void *p)
{
	return (int64_t)(-(uintptr_t)p % CPU_LINE);
}

#endif
