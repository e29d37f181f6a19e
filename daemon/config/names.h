/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name or number. A lookup by name may block: the loop's thread must not do one while it
 * runs. */
#ifndef DAEMON_CONFIG_NAMES_H
#define DAEMON_CONFIG_NAMES_H

#include <stdint.h>

#include "proto/status.h"

/* Digits are an id, anything else is a name. Returns 0, or INVALID_ARGUMENT with the reason. */
int user_parse(const char *text, uint32_t *ret, struct error *err);
int group_parse(const char *text, uint32_t *ret, struct error *err);

/* Digits only: -1 is no id. */
int id_parse(const char *text, uint32_t *ret, struct error *err);

#endif
