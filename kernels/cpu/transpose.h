/* What the transpose leaf's two files share. */
#ifndef KERNELS_CPU_TRANSPOSE_H
#define KERNELS_CPU_TRANSPOSE_H

#include "microkernel.h"

/* Rows and columns of two dimensions through the cache. next: where what is read after it begins in src, as
 * for cpu_strip_fn. */
void transpose_cached(const struct leaf *leaf, const char *next);

/* Row `row` of dst. */
char *leaf_row(const struct leaf *leaf, int64_t row);

/* Whether a leaf goes by way of scratch, which it must have. */
bool stage_takes(const struct leaf *leaf);
void stage_transpose(const struct leaf *leaf);

#endif
