/* SPDX-License-Identifier: Apache-2.0 */
/* From a message to the handler of its method. */
#ifndef DAEMON_METHOD_DISPATCH_H
#define DAEMON_METHOD_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/rpc.h"

struct session;

/* Handles one whole message of the session: answers it, refuses it, starts what will answer it, or ends the
 * session if it is not MessagePack-RPC. false: nothing of that, because a region has to be mapped or plans to
 * be made; the message is to be handled again once that has ended. */
bool dispatch(struct session *session, const uint8_t *data, size_t len);

/* A handler. Answers with session_reply, now or later, and returns 0; or returns a status with err filled in,
 * and dispatch refuses the request; or REACH_LATER, with nothing done that would be done twice. The request
 * is valid during the call. */
typedef int method_handler(struct session *session, const struct rpc_request *request, struct error *err);

/* method_service.c */
method_handler method_info, method_ping, method_stats;
/* method_region.c */
method_handler method_region_register, method_region_create, method_region_release, method_region_list;
/* method_session.c */
method_handler method_session_list;
/* method_transform.c: copy, transpose, pad and transform share a handler; explain only plans */
method_handler method_transform, method_explain;
/* method_ring.c */
method_handler method_ring_open, method_ring_close;
/* method_plan.c */
method_handler method_plan_prepare, method_plan_run, method_plan_release;
/* method_table.c */
method_handler method_table_prepare, method_table_release;
/* method_submit.c */
method_handler method_submit;
/* method_blocks.c */
method_handler method_gather, method_scatter;
/* method_reshard.c */
method_handler method_reshard;
/* method_cancel.c */
method_handler method_cancel;

#endif
