/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of one file into another as axes of the output: the file's order, --permute and --pad reduced to
 * strides into the source's bytes, in as few axes as will do. */
#ifndef CLIENT_TMACTL_COPY_VIEW_H
#define CLIENT_TMACTL_COPY_VIEW_H

#include <stdint.h>

#include "client/tmactl/npy/npy.h"
#include "client/tmactl/tmactl.h"

/* What the flags say, with their texts for the errors. */
struct view_args {
	const char *permute; /* NULL: not given */
	int n_perm;
	int perm[TMA_MAX_RANK];
	const char *pad; /* NULL: not given */
	int n_pad;
	int64_t before[TMA_MAX_RANK];
	int64_t after[TMA_MAX_RANK];
	enum tma_pad_mode mode;
	bool has_mode; /* it was given */
};

/* The input's dimension that becomes dimension d of the output, of rank: a negative one counts from the last.
 */
static inline int view_dimension(const struct view_args *args, int rank, int d)
{
	int named = args->permute ? args->perm[d] : d;

	return named < 0 ? named + rank : named;
}

/* Output index o in [0, extent) reads source index o - before when that is in [0, source), else the border
 * rule of the mode. */
struct view_axis {
	int64_t extent;
	int64_t before;     /* >= 0 */
	int64_t source;     /* after cropping */
	int64_t src_stride; /* bytes in the file, >= 0 */
};

struct view {
	int rank; /* of the output as it is moved */
	struct view_axis axis[TMA_MAX_RANK + 1];
	uint32_t element; /* bytes that travel as one: 1, 2, 4, 8 or 16 */
	enum tma_pad_mode mode;
	uint64_t src_offset; /* byte of the file of the first element that is not cropped */
	uint64_t dst_bytes;  /* of the whole output; 0: nothing moves */
	int out_rank;        /* of the output as its header says */
	int64_t out_shape[TMA_MAX_RANK];
};

/* Checks the flags against the file's shape: a permutation that is none, pads of another rank, crops that
 * leave nothing, empty dimensions with a mode that needs elements, sizes that overflow. */
int view_init(struct view *ret, const struct npy *npy, const struct view_args *args, struct failure *f);

#endif
