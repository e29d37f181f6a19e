/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of the service's documents, by key. A field that an older service does not send reads as zero or
 * empty. */
#ifndef CLIENT_TMACTL_FIELD_H
#define CLIENT_TMACTL_FIELD_H

#include <stdint.h>

#include "client/tmaclient.h"

/* As print_safe has it: good for a terminal, and for a while; "?" when there is none. */
const char *field_text(const tma_document *map, const char *key);

/* 0 when there is none, or a negative one. */
uint64_t field_uint(const tma_document *map, const char *key);

/* All numbers of a list or map together. */
uint64_t field_sum(const tma_document *counters);

#endif
