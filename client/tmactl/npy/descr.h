/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the descr of an .npy header, which describes the type of the array's items: their size, and how a
 * value is encoded as one. */
#ifndef CLIENT_TMACTL_NPY_DESCR_H
#define CLIENT_TMACTL_NPY_DESCR_H

#include <stdbool.h>
#include <stdint.h>

#include "literal.h"
#include "client/tmactl/tmactl.h"

#define DESCR_TEXT 8 /* bytes of a text such as '<f4', with its quotes and terminator */

struct descr {
	uint64_t item_bytes;
	int dtype;           /* enum tma_dtype as which a value is encoded; -1: only 0 can be encoded */
	uint32_t swap_bytes; /* big-endian items: bytes of each number in them; 0: little-endian */
	char name[24];       /* such as "float32", "datetime64", "structured" */
};

/* Parses a type code ("<f4", "|S10"), another spelling that numpy.dtype accepts ("float32", "?"), a type of
 * ml_dtypes ("bfloat16", "<f1"), or a list of fields, which may be nested. Refuses unknown codes, and Python
 * objects even in a field. path is named in the messages. */
int descr_parse(struct descr *ret, const struct literals *l, const struct literal *node, const char *path,
                struct failure *f);

/* Encodes a pad value as one item: sets the first item_bytes bytes of ret. Fails if items of the type cannot
 * have that value. text is the argument of --value, for the message. */
int descr_encode(const struct descr *descr, const struct tma_number *value, const char *text, uint8_t ret[16],
                 struct failure *f);

/* Sets *ret to the description of a type's items, and ret_text to its text in a header, with quotes: '<f4'.
 * bfloat16 and the 8-bit floating types, for which NumPy has no code, become untyped bytes such as '|V2',
 * much as ml_dtypes saves them. */
void descr_of(struct descr *ret, enum tma_dtype dtype, char ret_text[DESCR_TEXT]);

#endif
