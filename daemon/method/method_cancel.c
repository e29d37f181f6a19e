/* SPDX-License-Identifier: Apache-2.0 */
/* cancel: gives up a request that has not started. */
#include "dispatch.h"

#include "daemon/resource/job.h"
#include "daemon/net/session.h"

int method_cancel(struct session *session, const struct rpc_request *request, struct error *err)
{
	uint64_t msgid = request->params.cancel.request;
	struct job *job = msgid <= UINT32_MAX ? job_find(session, (uint32_t)msgid) : NULL;
	struct msg_canceled canceled = { .canceled = job && job_cancel(job) };

	(void)err;
	session_reply(session, request->msgid, request->method, &canceled, -1);
	return 0;
}
