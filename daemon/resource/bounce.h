/* SPDX-License-Identifier: Apache-2.0 */
/* Bounce buffers: host memory through which a session's transforms pass between two devices that do not reach
 * each other. Each session has one at most, which is made when it is first needed and is there until the
 * session ends, or a larger one is needed. It is a region like one that the session has created, charged to
 * its user and listed, but not found: requests cannot name it.
 */
#ifndef DAEMON_RESOURCE_BOUNCE_H
#define DAEMON_RESOURCE_BOUNCE_H

#include <stdint.h>

#include "proto/status.h"

struct bounce;
struct region;
struct session;

/* The session's buffer, of so many bytes at least; it is made for the device first. 0, REACH_LATER, QUOTA or
 * NO_MEMORY, or what engine_make says. */
int bounce_find(struct session *session, uint32_t device, uint64_t bytes, struct region **ret,
                struct error *err);

/* With the session. */
void bounce_free(struct session *session);

#endif
