/* SPDX-License-Identifier: Apache-2.0 */
/* table_prepare, table_release: places of layers that are checked once and used by many requests. */
#include "dispatch.h"

#include "daemon/net/session.h"
#include "daemon/resource/table.h"

int method_table_prepare(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct msg_table_prepared prepared = { 0 };
	int r = table_add(session, &request->params.table_prepare.places, &prepared.table, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, &prepared, -1);
	return r;
}

int method_table_release(struct session *session, const struct rpc_request *request, struct error *err)
{
	int r = table_release(session, request->params.table_release.table, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, NULL, -1);
	return r;
}
