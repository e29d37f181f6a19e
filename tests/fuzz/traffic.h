/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random valid requests from the tables of schema.def: every method, every subset of its fields. */
#ifndef TESTS_FUZZ_TRAFFIC_H
#define TESTS_FUZZ_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/schema.h"

#define TRAFFIC_MOST    8192  /* most bytes of a request */
#define TRAFFIC_REGIONS 4     /* regions that requests name: the first ones of a connection */
#define TRAFFIC_SIZE    65536 /* bytes of the registered memory */

/* Return the id of a connection's nth region or plan, provided that none was released before. */
uint64_t traffic_region(unsigned n);

/* Writes a request and returns its bytes. Sets *ret_method, which determines how many descriptors it takes.
 * About half of the transforms succeed if the regions exist. */
size_t traffic_request(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random,
                       const struct method **ret_method);

/* Does the same for one method. */
size_t traffic_request_of(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random, enum method_id id);

/* Writes a request that registers a memfd of TRAFFIC_SIZE bytes. */
size_t traffic_register(uint8_t ret[TRAFFIC_MOST], uint32_t msgid);

/* Fills the fields named by the mask in the message's struct with random valid values, in messages with lists
 * as well. What they point to is valid until the next call. */
void traffic_fill(const struct message *message, uint64_t fields, void *value, uint64_t *random);

#endif
