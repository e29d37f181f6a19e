/* SPDX-License-Identifier: Apache-2.0 */
/* Valid requests at random, made from schema.def's tables: every method, every subset of its fields. */
#ifndef TESTS_FUZZ_TRAFFIC_H
#define TESTS_FUZZ_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/schema.h"

#define TRAFFIC_MOST    8192  /* bytes of a request */
#define TRAFFIC_REGIONS 4     /* that requests name: the first ones of a connection */
#define TRAFFIC_SIZE    65536 /* of the memory that is registered */

/* The id that a connection's nth region, or plan, gets when none was released before. */
uint64_t traffic_region(unsigned n);

/* Writes a request and returns its bytes; *ret_method says which, and so how many descriptors it takes. About
 * half of the transforms are such as succeed when the regions are there. */
size_t traffic_request(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random,
                       const struct method **ret_method);

/* The same for one method. */
size_t traffic_request_of(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random, enum method_id id);

/* Registers a memfd of TRAFFIC_SIZE bytes. */
size_t traffic_register(uint8_t ret[TRAFFIC_MOST], uint32_t msgid);

/* Any values that the fields named by the mask may have, in the message's struct. What it points to is valid
 * until the next call. Messages with lists of all kinds too. */
void traffic_fill(const struct message *message, uint64_t fields, void *value, uint64_t *random);

#endif
