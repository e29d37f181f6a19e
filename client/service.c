/* What the service says of itself: ping and the calls that answer with a document. */
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

static int document_call(tma_client *client, enum method_id method, params_fn *fill, const void *from,
                         tma_document **ret)
{
	tma_document *document = NULL;
	struct call call = { .method = method,
		             .fill = fill,
		             .from = from,
		             .fd = -1,
		             .on_reply = on_document,
		             .arg = &document };
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	rc = client_call(client, &call);
	if (!rc)
		*ret = document;
	return rc;
}

int tma_info(tma_client *client, tma_document **ret)
{
	return document_call(client, METHOD_info, NULL, NULL, ret);
}

int tma_stats(tma_client *client, tma_document **ret)
{
	return document_call(client, METHOD_stats, NULL, NULL, ret);
}

int tma_regions(tma_client *client, tma_document **ret)
{
	return document_call(client, METHOD_region_list, NULL, NULL, ret);
}

struct explained {
	const struct tma_transform *transform;
	const char *engine; /* NULL: the service's */
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
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	if (!transform)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "the transform is NULL");
	return document_call(client, METHOD_explain, explain_fill, &explained, ret);
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
