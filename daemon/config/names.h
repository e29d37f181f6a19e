/* Users and groups of the machine by name or number. A lookup by name may block: not for the loop's thread
 * while it runs. */
#ifndef DAEMON_CONFIG_NAMES_H
#define DAEMON_CONFIG_NAMES_H

#include <stdint.h>

#include "proto/status.h"

/* Digits are a number, anything else is a name. 0, or INVALID_ARGUMENT and what is wrong. */
int user_parse(const char *text, uint32_t *ret, struct error *err);
int group_parse(const char *text, uint32_t *ret, struct error *err);

/* Digits alone: -1 is no id. */
int id_parse(const char *text, uint32_t *ret, struct error *err);

#endif
