/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the header of an .npy file, and makes one for a file to write. */
#ifndef CLIENT_TMACTL_NPY_NPY_H
#define CLIENT_TMACTL_NPY_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "descr.h"
#include "source.h"
#include "client/tmactl/tmactl.h"

struct npy {
	bool fortran; /* the first dimension varies fastest */
	int rank;
	int64_t shape[TMA_MAX_RANK];
	struct descr descr;
	char *descr_text; /* descr as in the header, in Latin-1 or, if utf8 is set, in UTF-8 */
	size_t descr_len;
	bool utf8;
	uint64_t count;       /* items */
	uint64_t data_offset; /* byte of the file at which the items begin */
	uint64_t data_bytes;  /* bytes of the items; less than 2^62 */
};

/* Reads the header of the source. Fails if the file is too short for its shape, as far as the size is known.
 * The caller frees *ret with npy_deinit() in either case. */
int npy_read(struct npy *ret, struct source *source, struct failure *f);
void npy_deinit(struct npy *npy);

/* Parses the text of a header. Sets all of *ret except data_offset. utf8 is the text's encoding. */
int npy_parse(struct npy *ret, const char *text, size_t len, bool utf8, const char *path, struct failure *f);

/* Makes the bytes of a file before its data, for an array in C order with this shape and the item type of
 * `like`. Uses the lowest version that can hold them, and NumPy's layout. The caller frees *ret. */
int npy_format(const struct npy *like, int rank, const int64_t *shape, char **ret, size_t *ret_len,
               struct failure *f);

#endif
