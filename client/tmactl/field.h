/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of the documents that the service sends, such as info and stats. The map may be NULL, and a
 * field may be missing because the service is of an older version: a number is 0 then and a text "?". */
#ifndef CLIENT_TMACTL_FIELD_H
#define CLIENT_TMACTL_FIELD_H

#include <stdint.h>

#include "client/tmaclient.h"

/* Returns a text as print_safe() escapes it, which is valid only for the next few calls, or "?" if there is
 * none. */
const char *field_text(const tma_document *map, const char *key);

/* Returns an integer, or 0 if there is none or it is negative. */
uint64_t field_uint(const tma_document *map, const char *key);

/* Returns the sum of the integers of a list or map. */
uint64_t field_sum(const tma_document *counters);

#endif
