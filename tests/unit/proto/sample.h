/* SPDX-License-Identifier: Apache-2.0 */
/* Valid messages made from the tables of schema.h, for tests to send, cut and break. */
#ifndef TEST_SAMPLE_H
#define TEST_SAMPLE_H

#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/schema.h"

/* Fills the message's struct with a valid value for each of the fields; maps within it hold all of theirs. */
void sample_message(const struct message *message, uint64_t fields, void *value);

/* A valid request with msgid 7. */
struct buffer sample_request(const struct method *method, uint64_t fields);

/* Valid requests, two a method: with what it requires, and with all it accepts. */
#define SAMPLE_REQUESTS (2 * METHOD_COUNT)
struct buffer sample_nth_request(int n);

/* Decodes the items of a submit or the parts of a region_register that has been decoded, so that it can be
 * encoded again; bad ones are left out. What it gives is to be freed, NULL of other requests. */
void *sample_keep_lists(struct rpc_request *request);

/* One message with every type of MessagePack that the protocol has, in each of its widths. */
struct buffer sample_all_types(void);

#endif
