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
	bool has_mode;     /* it was given */
	const char *split; /* NULL: not given */
	int n_split;
	int64_t split_dim[TMA_MAX_RANK];
	int64_t split_by[TMA_MAX_RANK];
	const char *join; /* NULL: not given */
	int n_join;
	int64_t join_dim[TMA_MAX_RANK];
	int64_t join_to[TMA_MAX_RANK];
	uint64_t dst_item_bytes; /* of items that are converted; 0: they stay as they are */
	int64_t channels;        /* elements of the input's dimension that has channels; 0: none has */
	int channel;             /* that dimension; negative ones count from the last */
	const char *channels_text;
	const char *block_text;      /* of blocks that have scales; NULL: there are none */
	int n_block;                 /* extents, of the output's last dimensions */
	int64_t block[TMA_MAX_RANK]; /* -1: all of a dimension */
	uint32_t scale_item_bytes;
};

/* Splits as the library takes them: n pairs. */
struct view_splits {
	int n;
	int64_t pair[2 * TMA_MAX_SPLIT];
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
	int64_t dst_stride; /* bytes in the output */
	int of;             /* its number before axes were fused */
	bool is_fixed;      /* a digit of a ragged dimension, channels, or in blocks: not to be fused */
	int64_t block;      /* elements of a block, which is not cut; 0: 1 */
};

static inline int64_t view_block(const struct view_axis *axis)
{
	return axis->block ? axis->block : 1;
}

/* Axes, outermost first, that count the elements of one dimension of a file in mixed radix, where not all
 * numbers exist, because the last block is incomplete: only those below the one with these digits. */
struct view_rest {
	bool is_src;
	int rank;
	int axis[TMA_MAX_SPLIT + 1];
	int64_t digit[TMA_MAX_SPLIT + 1];
};

struct view {
	int rank; /* of the output as it is moved */
	struct view_axis axis[TMA_MAX_RANK + 1];
	uint32_t element;     /* bytes that travel as one: 1, 2, 4, 8 or 16 */
	uint32_t dst_element; /* likewise, in the output */
	enum tma_pad_mode mode;
	uint64_t src_offset; /* byte of the file of the first element that is not cropped */
	uint64_t dst_bytes;  /* of the whole output; 0: nothing moves */
	int out_rank;        /* of the output as its header says */
	int64_t out_shape[TMA_MAX_RANK];
	int middle_rank; /* with the input's dimensions split, and the output's not joined yet */
	struct view_splits src_split;
	struct view_splits dst_split; /* as which the output's joined dimensions are seen */
	int n_rests;
	struct view_rest rest[2 * TMA_MAX_SPLIT];
	int channel_of;         /* dimension of the output, not joined yet, that has channels; -1: none */
	int channel;            /* its axis */
	int64_t first_channel;  /* that is not cropped */
	uint32_t scale_element; /* bytes of the scale of a block; 0: there are none */
	int64_t
	    scale_shape[TMA_MAX_RANK]; /* of out_rank: blocks. An axis is then a dimension of the output */
	uint64_t scale_bytes;
};

/* Checks the flags against the file's shape: a permutation that is none, pads of another rank, crops that
 * leave nothing, empty dimensions with a mode that needs elements, sizes that overflow, splits and joins that
 * do not fit, another number of channels than the dimension has, blocks of what is padded or joined. */
int view_init(struct view *ret, const struct npy *npy, const struct view_args *args, struct failure *f);

/* ---- For view.c: dimensions in blocks ---------------------------------------------------------------- */

/* Dimensions of the input under way: extents and strides, which splits take apart. */
struct view_dims {
	int rank;
	int64_t extent[TMA_MAX_RANK];
	int64_t stride[TMA_MAX_RANK];
	bool is_split[TMA_MAX_RANK];
	bool is_inner[TMA_MAX_RANK];
	int8_t origin[TMA_MAX_RANK]; /* dimension of the input */
};

/* Sets the blocks that have scales. */
int view_set_blocks(struct view *v, const struct view_args *args, struct failure *f);

/* Carries out --split. */
int view_split(struct view *v, struct view_dims *dims, const struct view_args *args, struct failure *f);

/* What of the input's dimensions is missing, once the output's axes are there. */
void view_add_src_rests(struct view *v, const struct view_dims *dims, const int64_t *shape,
                        const struct view_args *args);

/* Carries out --join on the shape of the output, gives its axes their strides, and adds its ragged
 * dimensions. is_padded: dimensions that --pad changes. */
int view_join(struct view *v, const struct view_args *args, uint64_t item_bytes, const bool *is_padded,
              struct failure *f);

#endif
