/* SPDX-License-Identifier: Apache-2.0 */
/* .npy files: the header of one to read, and the header of one to write. */
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
	char *descr_text; /* as it stands in the header, in Latin-1 or, when utf8, in UTF-8 */
	size_t descr_len;
	bool utf8;
	uint64_t count;       /* items */
	uint64_t data_offset; /* byte of the file where the items start */
	uint64_t data_bytes;
};

/* Reads the header of the source, and holds shape and data to its size, where that is known. *ret is to be
 * freed by npy_deinit in any case. */
int npy_read(struct npy *ret, struct source *source, struct failure *f);
void npy_deinit(struct npy *npy);

/* Parses a header's text into ret, up to data_bytes. */
int npy_parse(struct npy *ret, const char *text, size_t len, bool utf8, const char *path, struct failure *f);

/* The bytes of the file before its data, for a C-order array of this shape and like's dtype: the lowest
 * version that holds it, laid out as NumPy does. *ret is the caller's to free. */
int npy_format(const struct npy *like, int rank, const int64_t *shape, char **ret, size_t *ret_len,
               struct failure *f);

#endif
