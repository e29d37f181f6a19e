/* SPDX-License-Identifier: Apache-2.0 */
/* What an .npy header's descr says of an item: its size, and how a value is written into one. */
#ifndef CLIENT_TMACTL_NPY_DESCR_H
#define CLIENT_TMACTL_NPY_DESCR_H

#include <stdbool.h>
#include <stdint.h>

#include "literal.h"
#include "client/tmactl/tmactl.h"

#define DESCR_TEXT 8

struct descr {
	uint64_t item_bytes;
	int dtype;           /* enum tma_dtype that a value is read as; -1: zero bytes are all it can be */
	uint32_t swap_bytes; /* big-endian: bytes of the numbers in an item; 0: little-endian */
	char name[24];       /* "float32", "datetime64", "structured" */
};

/* Parses a type code ("<f4", "|S10"), another spelling that numpy.dtype has of one ("float32", "?"), a type
 * of ml_dtypes ("bfloat16", "<f1"), or a list of fields, nested as it may be. Python objects, in fields too,
 * and unknown codes are refused; path is named. */
int descr_parse(struct descr *ret, const struct literals *l, const struct literal *node, const char *path,
                struct failure *f);

/* The bits of a pad value in one item of a plain type, item_bytes of them; text is --value's, for the
 * error. */
int descr_encode(const struct descr *descr, const struct tma_number *value, const char *text, uint8_t ret[16],
                 struct failure *f);

/* That of items of a type, and its text for a header, in quotes: '<f4'. bfloat16 and the 8-bit floating types
 * have no code of NumPy's and are bytes, as ml_dtypes saves them: '|V2'. */
void descr_of(struct descr *ret, enum tma_dtype dtype, char ret_text[DESCR_TEXT]);

#endif
