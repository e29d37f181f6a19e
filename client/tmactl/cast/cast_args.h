/* SPDX-License-Identifier: Apache-2.0 */
/* The parsed options of the groups cast and amax. Their texts are kept for messages, and are not copied. */
#ifndef CLIENT_TMACTL_CAST_CAST_ARGS_H
#define CLIENT_TMACTL_CAST_CAST_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tmactl/args.h"
#include "client/tmactl/tmactl.h"

struct cast_list {
	const char *text; /* NULL: not given */
	size_t n;
	double *v; /* owned; n numbers */
};

/* Options for scales that are computed from the data, one for each block of the output. */
struct amax_args {
	const char *block_text;      /* NULL: no scales are computed */
	int n_block;                 /* extents in block[] */
	int64_t block[TMA_MAX_RANK]; /* extents of a block in the last dimensions; -1: the whole dimension */
	bool power_of_two;
	double least;           /* least magnitude that a block is taken to have */
	enum tma_dtype dtype;   /* type of the scales; set to float32 by cast_args_check() if not given */
	const char *dtype_text; /* NULL: not given */
	const char *given;      /* last option other than --amax-block, without dashes; NULL: none */
};

/* Zero-initialized, no option is given. */
struct cast_args {
	const char *given;    /* last option of these groups, without dashes; NULL: none */
	struct type_arg type; /* element type of the output */
	bool has_cast;
	enum tma_cast cast;
	struct cast_list scale, bias, mean, std;
	const char *axis_text; /* text of --channel-axis; NULL: not given */
	int axis;              /* dimension of the channels; a negative one counts from the last */
	struct amax_args amax;
};

/* Parses an option of the groups cast and amax, or the output's type (OPT_TO_DTYPE, OPT_OUTPUT_DTYPE). name
 * is the option's name without dashes. Returns 0, or -1 with f set. If opt is none of these options, returns
 * -1 without setting f. */
int cast_args_set(struct cast_args *args, int opt, const char *name, const char *text, struct failure *f);

/* Checks the options against each other: scale and bias exclude mean and std, all of these exclude computed
 * scales, lists have the same length, no std is 0, and an axis is given only with a list. Then turns mean and
 * std into scale and bias: 1/std and -mean/std. */
int cast_args_check(struct cast_args *args, struct failure *f);

void cast_args_deinit(struct cast_args *args);

#endif
