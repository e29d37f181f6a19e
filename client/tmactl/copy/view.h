/* SPDX-License-Identifier: Apache-2.0 */
/* A view: the description of how one file is copied into another, as axes of the output. The file's order,
 * --permute, --pad, --split and --join are reduced to byte strides on both sides, and axes are fused where
 * possible. A view owns no memory and does not change once view_init() has made it. */
#ifndef CLIENT_TMACTL_COPY_VIEW_H
#define CLIENT_TMACTL_COPY_VIEW_H

#include <stdint.h>

#include "client/tmactl/npy/npy.h"
#include "client/tmactl/tmactl.h"

/* The parsed options. Their texts are kept for messages, and are not copied. args.c fills the members up to
 * join_to, and cast_init() those below. */
struct view_args {
	const char *permute; /* NULL: not given */
	int n_perm;
	int perm[TMA_MAX_RANK];
	const char *pad; /* NULL: not given */
	int n_pad;
	int64_t before[TMA_MAX_RANK];
	int64_t after[TMA_MAX_RANK];
	enum tma_pad_mode mode;
	bool has_mode;     /* --mode was given */
	const char *split; /* NULL: not given */
	int n_split;
	int64_t split_dim[TMA_MAX_RANK]; /* dimension to split; a negative one counts from the last */
	int64_t split_by[TMA_MAX_RANK];  /* elements of a block */
	const char *join;                /* NULL: not given */
	int n_join;
	int64_t join_dim[TMA_MAX_RANK]; /* first of the two dimensions; a negative one counts from the last */
	int64_t join_to[TMA_MAX_RANK];  /* extent of the joined dimension */
	uint64_t dst_item_bytes;        /* size of a converted item; 0: items are not converted */
	int64_t channels;               /* length of the list of scales or biases; 0: no list is given */
	int channel;               /* input dimension of the channels; a negative one counts from the last */
	const char *channels_text; /* text of the list */
	const char *block_text;    /* text of --amax-block; NULL: no scales are computed */
	int n_block;               /* extents in block[], of the output's last dimensions */
	int64_t block[TMA_MAX_RANK]; /* extents of a block; -1: the whole dimension */
	uint32_t scale_item_bytes;   /* size of a scale */
};

/* Splits as the library takes them: n pairs of a dimension and the elements of a block. */
struct view_splits {
	int n;
	int64_t pair[2 * TMA_MAX_SPLIT];
};

/* Returns the dimension of the input that becomes dimension d of the output. rank is that of the input after
 * its splits. */
static inline int view_dimension(const struct view_args *args, int rank, int d)
{
	int named = args->permute ? args->perm[d] : d;

	return named < 0 ? named + rank : named;
}

/* An axis of the output. Output index o in [0, extent) reads source index o - before if that lies in [0,
 * source); otherwise it belongs to the border, which the padding mode fills. */
struct view_axis {
	int64_t extent;
	int64_t before;     /* border before the source, >= 0; the border after it is what extent leaves */
	int64_t source;     /* source elements after cropping */
	int64_t src_stride; /* bytes in the source file, >= 0 */
	int64_t dst_stride; /* bytes in the output */
	int of;             /* index of the axis before axes were fused */
	bool is_fixed; /* not to be fused: digit of a ragged dimension (view_rest), channels, or blocks */
	int64_t block; /* elements of a block that has a scale and must not be cut; 0 means 1 */
};

/* Returns how many consecutive elements along the axis belong together and must not be cut apart. */

static inline int64_t view_block(const struct view_axis *axis)
{
	return axis->block ? axis->block : 1;
}

/* A ragged dimension of the source or the output: one whose last block is incomplete. Its elements are
 * numbered in mixed radix by several axes, outermost first, each of which gives one digit. Only the numbers
 * below the one with the digits digit[] exist in the file. */
struct view_rest {
	bool is_src; /* dimension of the source; false: of the output */
	int rank;    /* axes in axis[] */
	int axis[TMA_MAX_SPLIT + 1];
	int64_t digit[TMA_MAX_SPLIT + 1];
};

struct view {
	int rank; /* axes that are moved: the output's, split, fused, and one for large items */
	struct view_axis axis[TMA_MAX_RANK + 1];
	uint32_t element;     /* bytes of the source that are moved as one element: 1, 2, 4, 8 or 16 */
	uint32_t dst_element; /* bytes of such an element in the output, which differ after a conversion */
	enum tma_pad_mode mode;
	uint64_t src_offset; /* byte of the file at which the first element that is not cropped begins */
	uint64_t dst_bytes;  /* size of the output's data; 0: nothing is moved */
	int out_rank;        /* rank of the output in its header */
	int64_t out_shape[TMA_MAX_RANK];
	int middle_rank; /* rank between splits and joins, as --permute and --pad count dimensions */
	struct view_splits src_split;
	struct view_splits dst_split; /* splits of the output's dimensions that undo the joins */
	int n_rests;
	struct view_rest rest[2 * TMA_MAX_SPLIT];
	int channel_of;         /* dimension of the channels between splits and joins; -1: there are none */
	int channel;            /* axis of the channels; -1: there are none */
	int64_t first_channel;  /* first channel that is not cropped */
	uint32_t scale_element; /* bytes of a block's scale; 0: no scales are computed */
	/* Blocks along each of the out_rank dimensions. If scales are computed, axis d is dimension d. */
	int64_t scale_shape[TMA_MAX_RANK];
	uint64_t scale_bytes;
};

/* Initializes *ret after checking the options against the file's header. Refuses a --permute that is no
 * permutation, pads of another rank, crops that leave nothing, empty dimensions with a mode that needs
 * elements, sizes that overflow, splits and joins that do not fit, lists whose length is not the number of
 * channels, and blocks of dimensions that are padded or joined. */
int view_init(struct view *ret, const struct npy *npy, const struct view_args *args, struct failure *f);

/* ---- For view.c: dimensions in blocks ---------------------------------------------------------------- */

/* The dimensions of the input while splits are carried out. */
struct view_dims {
	int rank;
	int64_t extent[TMA_MAX_RANK];
	int64_t stride[TMA_MAX_RANK]; /* bytes in the file */
	bool is_split[TMA_MAX_RANK];  /* result of a split */
	bool is_inner[TMA_MAX_RANK];  /* counts the elements of a block, not the blocks */
	int8_t origin[TMA_MAX_RANK];  /* dimension of the file from which it was split */
};

/* Carries out --amax-block: sets the extents of the blocks that have scales, and the shape of the scales. */
int view_set_blocks(struct view *v, const struct view_args *args, struct failure *f);

/* Carries out --split. */
int view_split(struct view *v, struct view_dims *dims, const struct view_args *args, struct failure *f);

/* Adds the ragged dimensions of the input, whose file has this shape. The output's axes are set already. */
void view_add_src_rests(struct view *v, const struct view_dims *dims, const int64_t *shape,
                        const struct view_args *args);

/* Carries out --join on the shape of the output, sets the output strides of the axes, and adds the output's
 * ragged dimensions. is_padded[d] says whether --pad changes dimension d. */
int view_join(struct view *v, const struct view_args *args, uint64_t item_bytes, const bool *is_padded,
              struct failure *f);

#endif
