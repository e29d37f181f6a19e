/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of limits as people write them: 4096, 64M, 30s. */
#ifndef DAEMON_CONFIG_QUANTITY_H
#define DAEMON_CONFIG_QUANTITY_H

#include <stdint.h>

#include "proto/status.h"

enum quantity {
	QUANTITY_COUNT, /* digits only */
	QUANTITY_BYTES, /* or with K, M, G or T (powers of 1024, either case), and B or iB: 4G, 1.5GiB */
	QUANTITY_MS,    /* milliseconds, or with us, ms, s, min or h: 30s */
	QUANTITY_US,    /* microseconds, or with one of these units */
};

/* The kind of a limit, from its name: it ends in _ms or _us, or contains bytes. */
enum quantity quantity_of(const char *name);

/* Parses a number from min to max, in its own unit; otherwise INVALID_ARGUMENT with the rule. A fraction of a
 * byte is dropped, a fraction of the unit of time is an error. */
int quantity_parse(enum quantity quantity, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                   struct error *err);

#endif
