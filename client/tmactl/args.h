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
int args_shape(int64_t shape[TMA_MAX_RANK], int *ret_rank, const char *text, struct failure *f); /* 64,100 */
int args_value(struct tma_number *ret, const char *text, struct failure *f); /* 1, -0.5, nan, 1,2 or 1+2j */
/* An option of the group share, by its name: what requests pass and take. */
int args_share(struct tma_order *ret, const char *name, const char *text, struct failure *f);
int args_bytes(uint64_t *ret, const char *flag, const char *text, struct failure *f); /* 1.5G */

/* What goes together: value, --value's text or NULL, and --mode ask for --pad, and a value for mode constant.
 */
int args_check(const struct view_args *args, const char *value, struct failure *f);

#endif
