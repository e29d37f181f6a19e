/* SPDX-License-Identifier: Apache-2.0 */
/* One change to a message that was valid: what a careless or hostile client gets wrong. */
#ifndef TESTS_FUZZ_SPOIL_H
#define TESTS_FUZZ_SPOIL_H

#include <stddef.h>
#include <stdint.h>

enum spoil {
	SPOIL_TYPE,      /* an item of another type */
	SPOIL_VALUE,     /* a number at a limit, a text that means something else */
	SPOIL_DUPLICATE, /* a pair or an element twice */
	SPOIL_DROP,      /* one less */
	SPOIL_RENAME,    /* a key that is another's, or nobody's */
	SPOIL_ORDER,     /* two pairs or elements change places */
	SPOIL_HEADER,    /* a header that counts wrong, far too much, or in more bytes than needed */
	SPOIL_NEST,      /* an item within arrays */
	SPOIL_BYTE,      /* any byte */
	SPOIL_CUT,       /* the end is missing */
	SPOIL_COUNT
};

/* Changes the message data[len] within max bytes and returns its new length. Nothing may come of it where the
 * message has nothing of the kind. */
size_t spoil(uint8_t *data, size_t len, size_t max, enum spoil how, uint64_t *random);

/* The same, any of them; with bytes that are no whole message, a byte. */
size_t spoil_somehow(uint8_t *data, size_t len, size_t max, uint64_t *random);

#endif
