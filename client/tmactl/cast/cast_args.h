/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of the group cast say, with their texts for the errors. */
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
	double *v;
};

/* Scales that are computed on the way. */
struct amax_args {
	const char *block_text; /* NULL: there are none */
	int n_block;
	int64_t block[TMA_MAX_RANK]; /* of the last dimensions; -1: all of it */
	bool power_of_two;
	double least;
	enum tma_dtype dtype;   /* of the scales */
	const char *dtype_text; /* NULL: not given */
	const char *given;      /* the last of the options but the first, without its dashes; NULL: none */
};

/* Zero-initialized: nothing is given. */
struct cast_args {
	const char *given;    /* the last of the options, without its dashes; NULL: none */
	struct type_arg type; /* that of the output */
	bool has_cast;
	enum tma_cast cast;
	struct cast_list scale, bias, mean, std;
	const char *axis_text; /* NULL: not given */
	int axis;
	struct amax_args amax;
};

/* An option of the groups cast and amax, or with OPT_TO_DTYPE or OPT_OUTPUT_DTYPE the output's type: -1 with
 * EXIT_USAGE. */
int cast_args_set(struct cast_args *args, int opt, const char *name, const char *text, struct failure *f);

/* What goes together: neither scale nor bias beside mean and std, and none of them beside scales that are
 * computed; lists of one length; no std of 0; an axis for a list. mean and std become scale and bias: 1/std
 * and -mean/std. */
int cast_args_check(struct cast_args *args, struct failure *f);

void cast_args_deinit(struct cast_args *args);

#endif
