/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the transpose microkernel, transpose.c and stage.c, share. */
#ifndef KERNELS_CPU_TRANSPOSE_H
#define KERNELS_CPU_TRANSPOSE_H

#include "microkernel.h"

/* Rows and columns of two dimensions through the cache. next: where what is read after it begins in src, as
 * for cpu_strip_fn. */
void transpose_cached(const struct microkernel *microkernel, const char *next);

/* Row `row` of dst. */
char *microkernel_row(const struct microkernel *microkernel, int64_t row);

/* Whether a microkernel goes by way of scratch, which it must have. */
bool stage_takes(const struct microkernel *microkernel);
void stage_transpose(const struct microkernel *microkernel);

#endif
