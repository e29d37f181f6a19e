/* SPDX-License-Identifier: Apache-2.0 */
/* Valid messages made from the tables of schema.h, for tests to send, cut and break. */
#ifndef TEST_SAMPLE_H
#define TEST_SAMPLE_H

#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/schema.h"

/* Sets each of the fields of the message's struct to a valid value. Maps within it have all of their
 * fields. */
void sample_message(const struct message *message, uint64_t fields, void *value);

/* Returns a valid request with msgid 7. */
struct buffer sample_request(const struct method *method, uint64_t fields);

/* Returns one of the valid requests. Each method has two: with the fields that it requires, and with all that
 * it accepts. */
#define SAMPLE_REQUESTS (2 * METHOD_COUNT)
struct buffer sample_nth_request(int n);

/* Decodes the items of a submit, the further destinations of a transform, the parts of a region_register or
 * the slices of a reshard, so that the request can be encoded again; invalid ones are left out. Returns
 * memory that the caller frees, or NULL for other requests. */
void *sample_keep_lists(struct rpc_request *request);

/* Returns a message that contains every type of MessagePack that the protocol uses, in each of its widths. */
struct buffer sample_all_types(void);

#endif
