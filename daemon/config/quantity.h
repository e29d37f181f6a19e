/* Numbers of limits as people write them: 4096, 64M, 30s. */
#ifndef DAEMON_CONFIG_QUANTITY_H
#define DAEMON_CONFIG_QUANTITY_H

#include <stdint.h>

#include "proto/status.h"

enum quantity {
	QUANTITY_COUNT, /* digits alone */
	QUANTITY_BYTES, /* or with K, M, G or T (of 1024, either case), and B or iB behind that: 4G, 1.5GiB */
	QUANTITY_MS,    /* milliseconds, or with us, ms, s, min or h: 30s */
	QUANTITY_US,    /* microseconds, or with one of those */
};

/* Of a limit, by its name: it ends with _ms or _us, or has bytes in it. */
enum quantity quantity_of(const char *name);

/* The number in its own unit, from min to max; else INVALID_ARGUMENT and the rule. A fraction of a byte is
 * left off, one of a time is an error. */
int quantity_parse(enum quantity quantity, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                   struct error *err);

#endif
