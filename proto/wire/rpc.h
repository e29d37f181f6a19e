/* SPDX-License-Identifier: Apache-2.0 */
/* MessagePack-RPC: requests and replies to and from structs, by the tables of schema.h.
 *
 * The one codec behind it (codec.c) walks field tables, so that missing, unknown, duplicate and
 * wrong-type fields are handled once. A decoder owns memory that is reused from message to message: what
 * a call decoded is valid until the next call with the same decoder and while the message's bytes are.
 */
#ifndef PROTO_WIRE_RPC_H
#define PROTO_WIRE_RPC_H

#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "proto/schema.h"
#include "proto/status.h"

struct rpc_decoder;

struct rpc_decoder *rpc_decoder_new(void); /* NULL: out of memory */
void rpc_decoder_free(struct rpc_decoder *decoder);

/* A server does this with a message. */
enum rpc_outcome {
	RPC_DISPATCH, /* a request for ret->method, parameters decoded */
	RPC_REFUSE,   /* a request to answer with err: ret->msgid is set, ret->method where it is known */
	RPC_RING,     /* the notification ring: the connection's submission ring has entries */
	RPC_IGNORE,   /* another notification: nothing to do */
	RPC_BROKEN,   /* not MessagePack-RPC: err says how; the connection has to end */
};

struct rpc_request {
	uint32_t msgid;
	const struct method *method; /* NULL when unknown */
	union params params;         /* valid after RPC_DISPATCH */
};

/* Decodes one whole message (frame_scan's). A method named by a request that is not known is
 * STATUS_UNSUPPORTED; parameters that break the schema are STATUS_INVALID_ARGUMENT, and the sentence names
 * the field by its path ("src.dtype"). */
enum rpc_outcome rpc_decode_request(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                    struct rpc_request *ret, struct error *err);

/* rpc_find_msgid finds the msgid of a message of which the first bytes are known, as far as that goes. */
enum rpc_head {
	RPC_HEAD_REQUEST, /* *ret is set */
	RPC_HEAD_SHORT,   /* more bytes are needed */
	RPC_HEAD_OTHER,   /* it is no request */
};
enum rpc_head rpc_find_msgid(const uint8_t *data, size_t len, uint32_t *ret);

/* So many bytes are enough for it. */
#define RPC_HEAD_BYTES 23

/* Lets go of the memory that a message took; at the latest the next one does. After it, and not before,
 * item lists of the request are no more. */
void rpc_decoder_rest(struct rpc_decoder *decoder);

/* Decodes item i of a submit; i < items->n. Errors are as of rpc_decode_request, by the path
 * "items[3].src.dtype". */
int rpc_decode_item(const struct item_list *items, uint32_t i, struct submit_item *ret, struct error *err);

/* Decodes part i of a region_register; i < parts->n. Errors are as above, by the path "parts[3].size". */
int rpc_decode_part(const struct message_list *parts, uint32_t i, struct msg_part *ret, struct error *err);

/* Decodes tensor i of a transform's further_dst; i < list->n. Errors are as above, by the path
 * "further_dst[3].dtype". */
int rpc_decode_further_dst(const struct message_list *list, uint32_t i, struct msg_tensor *ret,
                           struct error *err);

/* Decodes slice i of a reshard's list, which is called name; i < slices->n. Errors are as above, by the path
 * "sources[3].tensor.dtype". */
int rpc_decode_slice(const struct message_list *slices, const char *name, uint32_t i, struct msg_slice *ret,
                     struct error *err);

/* These are the ways to answer. result is the C struct of method->result (RESULT_MESSAGE), a struct
 * message_list (RESULT_LIST) or NULL (RESULT_TRUE). On failure (STATUS_NO_MEMORY) nothing was appended. */
int rpc_encode_result(struct buffer *b, uint32_t msgid, const struct method *method, const void *result);
int rpc_encode_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* Does the same, and the connection ends with it ({"ends": true} among the error's details). */
int rpc_encode_last_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* Answers a request with reply="queued": {"queued": true}. */
int rpc_encode_queued(struct buffer *b, uint32_t msgid);

/* Encodes the notification done of such a request, [2, "done", [msgid, error, result]]. error is NULL when it
 * went well, else result is. */
int rpc_encode_done(struct buffer *b, uint32_t msgid, const struct method *method, const void *result,
                    const struct error *error);

/* Encodes a request, on the client's side. params is the C struct of method->params (NULL when it has no
 * fields); OPTIONAL fields whose bit in `has` is not set are not sent. On failure nothing was appended. */
int rpc_encode_request(struct buffer *b, uint32_t msgid, const struct method *method, const void *params);

/* Encodes the notification by which a client says that its submission ring has entries. */
int rpc_encode_ring(struct buffer *b);

struct rpc_reply {
	uint32_t msgid;
	bool is_done;         /* it is the notification done of a request that was answered as queued */
	struct error error;   /* status 0: a result */
	bool ends;            /* an error after which the service closes the connection */
	const void *document; /* the result as a msgpack_object of the decoder's, for client/document.c */
};

/* Returns 0, or STATUS_PROTOCOL with err when the message is no reply ([1, msgid, error, result]).
 * Notifications other than done give 1 and are to be dropped. */
int rpc_decode_reply(struct rpc_decoder *decoder, const uint8_t *data, size_t len, struct rpc_reply *ret,
                     struct error *err);

/* Decodes the reply's result into the struct of method->result (RESULT_MESSAGE only, no NAMES or COUNTERS
 * fields). Unknown keys are skipped: servers grow. Returns 0, or STATUS_PROTOCOL with err. */
int rpc_decode_result(const struct rpc_reply *reply, const struct method *method, void *ret,
                      struct error *err);

/* Tells if the reply is that of a request that was only queued. */
bool rpc_is_queued(const struct rpc_reply *reply);

/* Returns code i of a list in a result, or INTERNAL for one that we do not know. i < codes->n. */
int rpc_code_at(const struct code_list *codes, uint32_t i);

/* Decodes error i of a submit's result. Returns 0, or STATUS_PROTOCOL with err. */
int rpc_decode_item_error(const struct message_list *errors, uint32_t i, struct msg_item_error *ret,
                          struct error *err);

#endif
