/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one change to a valid message, of a kind that a faulty or hostile client might send. */
#ifndef TESTS_FUZZ_SPOIL_H
#define TESTS_FUZZ_SPOIL_H

#include <stddef.h>
#include <stdint.h>

enum spoil {
	SPOIL_TYPE,      /* replaces an item by one of another type */
	SPOIL_VALUE,     /* replaces a number by one at a limit, or a text by another known word */
	SPOIL_DUPLICATE, /* repeats a pair or an element */
	SPOIL_DROP,      /* removes a pair or an element */
	SPOIL_RENAME,    /* replaces a key by another known one, or by an unknown one */
	SPOIL_ORDER,     /* swaps two pairs or elements */
	/* Replaces a header by one with a wrong or huge count, or with more bytes than needed. */
	SPOIL_HEADER,
	SPOIL_NEST, /* wraps an item in arrays */
	SPOIL_BYTE, /* changes any byte */
	SPOIL_CUT,  /* cuts off the end */
	SPOIL_COUNT
};

/* Changes the message data[len] within max bytes and returns its new length. Leaves it unchanged if it has
 * nothing that such a change applies to. */
size_t spoil(uint8_t *data, size_t len, size_t max, enum spoil how, uint64_t *random);

/* Makes a change of a random kind; changes a byte if the data is no whole message. */
size_t spoil_somehow(uint8_t *data, size_t len, size_t max, uint64_t *random);

#endif
