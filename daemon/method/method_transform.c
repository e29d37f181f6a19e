/* SPDX-License-Identifier: Apache-2.0 */
/* copy, transpose, pad, transform: checks the request against the regions, finds or makes the plan, queues
 * the job. */
#include "dispatch.h"

#include "bounced.h"
#include "destinations.h"
#include "order.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "transforms.h"

int method_transform(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct parts parts;
	struct order order;
	int r = order_of(session, transform, p, &order, err);

	if (r == 0 && p->further_dst.n > 0)
		return destinations_start(session, request, &order, err);
	if (r == 0 && transform_is_bounced(session, p))
		return bounced_start(session, request, &order, err);
	if (r == 0)
		r = transform_plan(session, p, DEVICE_ANY, NULL, &parts, err);
	if (r == 0)
		r = transform_start(session, request, &order, &parts, err);
	return r;
}
