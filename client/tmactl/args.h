/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of option values: lists, pads, numbers, sizes. */
#ifndef CLIENT_TMACTL_ARGS_H
#define CLIENT_TMACTL_ARGS_H

#include <stdint.h>

#include "tmactl.h"
#include "client/tmactl/copy/view.h"

/* Each parser returns 0, or -1 with an EXIT_USAGE failure that names the option and its text. An empty text
 * is a list without elements. Texts that are stored in args are not copied. The comments on the right are
 * examples. */
int args_permute(struct view_args *args, const char *text, struct failure *f);              /* 1,0 */
int args_pad(struct view_args *args, const char *text, struct failure *f);                  /* 1:2,-1:0 */
int args_split(struct view_args *args, const char *text, struct failure *f);                /* 0:128,1:32 */
int args_join(struct view_args *args, const char *text, struct failure *f);                 /* 1:50 */
int args_block(int64_t ret[TMA_MAX_RANK], int *ret_n, const char *text, struct failure *f); /* -1,128 */
int args_mode(struct view_args *args, const char *text, struct failure *f);                 /* edge */
int args_dtype(enum tma_dtype *ret, const char *flag, const char *text,
               struct failure *f); /* float32 or f4 */

/* Parses a real number, or a quotient of two such as 1/255, with blanks around each, and moves *text past it.
 * Returns 0, -1 if there is no number, or -2 if the divisor is 0. */
int args_number(const char **text, double *ret);

/* Sets f to the failure for rc, a negative value that args_number() returned, and returns -1. name is the
 * option's name without dashes, and form describes what was expected. */
int args_no_number(int rc, const char *name, const char *text, const char *form, struct failure *f);

/* An element type that either of two options, such as --dtype and --to-dtype, may give. */
struct type_arg {
	const char *name; /* the option that gave it last, without its dashes; NULL: none did */
	enum tma_dtype dtype;
};

/* Parses the element type that option `name` gives. Fails if another option has already given a different
 * one; `what` names the array in the message, as in "the output". */
int args_type(struct type_arg *ret, const char *name, const char *what, const char *text, struct failure *f);
int args_shape(int64_t shape[TMA_MAX_RANK], int *ret_rank, const char *text, struct failure *f); /* 64,100 */
int args_value(struct tma_number *ret, const char *text, struct failure *f); /* 1, -0.5, nan, 1,2 or 1+2j */

/* Parses the value of an option that sets the priority or the resources of requests. name is the option's
 * name without dashes: priority, multiprocessors or host-threads. */
int args_share(struct tma_order *ret, const char *name, const char *text, struct failure *f);
int args_bytes(uint64_t *ret, const char *flag, const char *text, struct failure *f); /* 1.5G */

/* Checks options against each other: --mode needs --pad, and --value needs --pad or --split and mode
 * constant. value is the text of --value, or NULL if it was not given. */
int args_check(const struct view_args *args, const char *value, struct failure *f);

#endif
