/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes messages, and calls the handler of each request's method. */
#ifndef DAEMON_API_DISPATCH_H
#define DAEMON_API_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/rpc.h"

struct session;

/* Handles one whole message of the session: answers it, refuses it, starts the work that will answer it, or
 * ends the session if the message is not MessagePack-RPC. Returns false if it did none of that, because a
 * region has to be mapped or plans have to be made first; the message is to be handled again then. */
bool dispatch(struct session *session, const uint8_t *data, size_t len);

/* Marks the session's mappings that are under way as no longer wanted. Must be called when the session
 * ends. */
void session_give_up_mappings(struct session *session);

/* A handler does one of three things. It answers with session_reply, now or later, and returns 0. Or it fills
 * in *err and returns a status, and dispatch refuses the request. Or it returns REACH_LATER if the request is
 * to be handled again; it must then have done nothing that must not be done twice. The request is valid only
 * during the call. */
typedef int method_handler(struct session *session, const struct rpc_request *request, struct error *err);

/* These are in method_service.c. */
method_handler method_info, method_ping, method_stats, method_cancel;
method_handler method_session_list, method_region_list;
/* These are in method_region.c. */
method_handler method_region_register, method_region_create, method_region_release;
/* These are in transforms.c. The first one handles copy, transpose, pad and transform; the other one only
 * plans. */
method_handler method_transform, method_explain;
/* These are in method_plan.c. */
method_handler method_plan_prepare, method_plan_run, method_plan_release;
method_handler method_table_prepare, method_table_release;
method_handler method_ring_open, method_ring_close;
/* These are in method_batch.c. */
method_handler method_submit, method_reshard, method_gather, method_scatter;

#endif
