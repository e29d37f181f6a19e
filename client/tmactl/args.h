/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of flag values: lists, pads, numbers, sizes. */
#ifndef CLIENT_TMACTL_ARGS_H
#define CLIENT_TMACTL_ARGS_H

#include <stdint.h>

#include "tmactl.h"
#include "client/tmactl/copy/view.h"

/* Each names its flag and text in the error, which is EXIT_USAGE. An empty list has no element. */
int args_permute(struct view_args *args, const char *text, struct failure *f);              /* 1,0 */
int args_pad(struct view_args *args, const char *text, struct failure *f);                  /* 1:2,-1:0 */
int args_split(struct view_args *args, const char *text, struct failure *f);                /* 0:128,1:32 */
int args_join(struct view_args *args, const char *text, struct failure *f);                 /* 1:50 */
int args_block(int64_t ret[TMA_MAX_RANK], int *ret_n, const char *text, struct failure *f); /* -1,128 */
int args_mode(struct view_args *args, const char *text, struct failure *f);                 /* edge */
int args_dtype(enum tma_dtype *ret, const char *flag, const char *text,
               struct failure *f); /* float32 or f4 */
/* Reads a real number, or a quotient of two such as 1/255, with blanks around each, up to what follows it;
 * *text moves there. Returns 0, -1 if there is none, or -2 if it divides by 0. */
int args_number(const char **text, double *ret);

/* Fails by what args_number returned; form is what was expected. */
int args_no_number(int rc, const char *name, const char *text, const char *form, struct failure *f);

/* Options of two names may give this type. */
struct type_arg {
	const char *name; /* of the last one, without its dashes; NULL: none is given */
	enum tma_dtype dtype;
};

/* Parses the type that the option called name gives what, as in "the output". If an option of another name
 * has given another type, it fails. */
int args_type(struct type_arg *ret, const char *name, const char *what, const char *text, struct failure *f);
int args_shape(int64_t shape[TMA_MAX_RANK], int *ret_rank, const char *text, struct failure *f); /* 64,100 */
int args_value(struct tma_number *ret, const char *text, struct failure *f); /* 1, -0.5, nan, 1,2 or 1+2j */
/* An option of the group share, by its name: what requests pass and take. */
int args_share(struct tma_order *ret, const char *name, const char *text, struct failure *f);
int args_bytes(uint64_t *ret, const char *flag, const char *text, struct failure *f); /* 1.5G */

/* What goes together: value, --value's text or NULL, and --mode ask for --pad, and a value for mode constant.
 */
int args_check(const struct view_args *args, const char *value, struct failure *f);

#endif
