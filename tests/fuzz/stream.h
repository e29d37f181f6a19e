/* SPDX-License-Identifier: Apache-2.0 */
/* The mutator of targets whose input is a byte of choices followed by messages. */
#ifndef TESTS_FUZZ_STREAM_H
#define TESTS_FUZZ_STREAM_H

#include <stddef.h>
#include <stdint.h>

size_t stream_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Spoils one of the messages in data; replaces bytes that are no message by one. Returns the new size. */
size_t stream_spoil(uint8_t *data, size_t size, size_t max_size, uint64_t *random);

#endif
