/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that ask the service about itself: ping, and those that return documents. */
#include "client.h"

static int on_document(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                       void *arg, struct error *err)
{
	tma_document **ret = arg;

	(void)client;
	(void)method;
	*ret = document_new(reply->document, err);
	return *ret ? 0 : err->status;
}

/* Makes a call whose reply becomes *ret. call has the method and its parameters; the rest is set here. */
static int document_call(tma_client *client, struct call call, tma_document **ret)
{
	tma_document *document = NULL;
	int rc = client_check_ret(client, ret, "the document goes");

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc < 0)
		return rc;
	call.fd = -1;
	call.on_reply = on_document;
	call.arg = &document;
	rc = client_call(client, &call);
	if (!rc)
		*ret = document;
	return rc;
}

int tma_info(tma_client *client, tma_document **ret)
{
	return document_call(client, (struct call){ .method = METHOD_info }, ret);
}

int tma_stats(tma_client *client, tma_document **ret)
{
	return document_call(client, (struct call){ .method = METHOD_stats }, ret);
}

int tma_regions(tma_client *client, tma_document **ret)
{
	return tma_session_regions(client, 0, ret);
}

int tma_session_regions(tma_client *client, uint64_t session, tma_document **ret)
{
	const struct msg_region_list params = { .has = session ? F(region_list, session) : 0,
		                                .session = session };

	return document_call(client, (struct call){ .method = METHOD_region_list, .params = &params }, ret);
}

int tma_sessions(tma_client *client, uint64_t after, tma_document **ret)
{
	const struct msg_session_list params = { .has = after ? F(session_list, after) : 0, .after = after };

	return document_call(client, (struct call){ .method = METHOD_session_list, .params = &params }, ret);
}

struct explained {
	const struct tma_transform *transform;
	const char *engine; /* NULL: the service's own engine */
};

static int explain_fill(tma_client *client, const struct call *call, struct request *request,
                        union params *ret)
{
	const struct explained *explained = call->from;
	const struct call transform = { .from = explained->transform };
	int rc = transform_fill(client, &transform, request, ret);

	if (rc < 0 || !explained->engine)
		return rc;
	ret->transform.engine = bytes_of(explained->engine);
	ret->transform.has |= F(transform, engine);
	return 0;
}

int tma_explain_for(tma_client *client, const struct tma_transform *transform, const char *engine,
                    tma_document **ret)
{
	const struct explained explained = { transform, engine };
	if (client && !transform)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "the transform is NULL");
	return document_call(
	    client, (struct call){ .method = METHOD_explain, .fill = explain_fill, .from = &explained }, ret);
}

int tma_explain(tma_client *client, const struct tma_transform *transform, tma_document **ret)
{
	return tma_explain_for(client, transform, NULL, ret);
}

int on_true(tma_client *client, const struct rpc_reply *reply, const struct method *method, void *arg,
            struct error *err)
{
	(void)client;
	(void)reply;
	(void)method;
	(void)arg;
	(void)err;
	return 0;
}

int tma_ping(tma_client *client)
{
	int rc = client_check_usable(client);

	return rc < 0 ? rc
	              : client_call(client,
	                            &(struct call){ .method = METHOD_ping, .fd = -1, .on_reply = on_true });
}
