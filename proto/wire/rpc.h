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

#include "buffer.h"
#include "proto/schema.h"
#include "proto/status.h"

struct rpc_decoder;

struct rpc_decoder *rpc_decoder_new(void); /* NULL: out of memory */
void rpc_decoder_free(struct rpc_decoder *decoder);

/* What a server does with a message. */
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

/* The msgid of a message of which the first bytes are known, as far as that goes. */
enum rpc_head {
	RPC_HEAD_REQUEST, /* *ret is set */
	RPC_HEAD_SHORT,   /* more bytes are needed */
	RPC_HEAD_OTHER,   /* it is no request */
};
enum rpc_head rpc_find_msgid(const uint8_t *data, size_t len, uint32_t *ret);

/* As many bytes are enough for it. */
#define RPC_HEAD_BYTES 23

/* Lets go of the memory that a message took; at the latest the next one does. After it, and not before,
 * item lists of the request are no more. */
void rpc_decoder_rest(struct rpc_decoder *decoder);

/* Item i of a submit; i < items->n. Errors are as of rpc_decode_request, by the path "items[3].src.dtype". */
int rpc_decode_item(const struct item_list *items, uint32_t i, struct submit_item *ret, struct error *err);

/* Part i of a region_register; i < parts->n. Errors are as above, by the path "parts[3].size". */
int rpc_decode_part(const struct message_list *parts, uint32_t i, struct msg_part *ret, struct error *err);

/* Tensor i of a transform's further_dst; i < list->n. Errors are as above, by the path
 * "further_dst[3].dtype". */
int rpc_decode_further_dst(const struct message_list *list, uint32_t i, struct msg_tensor *ret,
                           struct error *err);

/* Slice i of a reshard's list, which is called name; i < slices->n. Errors are as above, by the path
 * "sources[3].tensor.dtype". */
int rpc_decode_slice(const struct message_list *slices, const char *name, uint32_t i, struct msg_slice *ret,
                     struct error *err);

/* The three ways to answer. result is the C struct of method->result (RESULT_MESSAGE), a struct
 * message_list (RESULT_LIST) or NULL (RESULT_TRUE). On failure (STATUS_NO_MEMORY) nothing was appended. */
int rpc_encode_result(struct buffer *b, uint32_t msgid, const struct method *method, const void *result);
int rpc_encode_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* The same, and the connection ends with it ({"ends": true} among the error's details). */
int rpc_encode_last_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* The answer of a request with reply="queued": {"queued": true}. */
int rpc_encode_queued(struct buffer *b, uint32_t msgid);

/* The notification done of such a request, [2, "done", [msgid, error, result]]: error NULL when it went well,
 * else result is. */
int rpc_encode_done(struct buffer *b, uint32_t msgid, const struct method *method, const void *result,
                    const struct error *error);

/* The client's side. params is the C struct of method->params (NULL when it has no fields); OPTIONAL fields
 * whose bit in `has` is not set are not sent. On failure nothing was appended. */
int rpc_encode_request(struct buffer *b, uint32_t msgid, const struct method *method, const void *params);

/* The notification by which a client says that its submission ring has entries. */
int rpc_encode_ring(struct buffer *b);

struct rpc_reply {
	uint32_t msgid;
	bool is_done;         /* it is the notification done of a request that was answered as queued */
	struct error error;   /* status 0: a result */
	bool ends;            /* an error after which the service closes the connection */
	const void *document; /* the result as a msgpack_object of the decoder's, for client/document.c */
};

/* 0, or STATUS_PROTOCOL with err when the message is no reply ([1, msgid, error, result]). Notifications
 * other than done give 1 and are to be dropped. */
int rpc_decode_reply(struct rpc_decoder *decoder, const uint8_t *data, size_t len, struct rpc_reply *ret,
                     struct error *err);

/* The reply's result into the struct of method->result (RESULT_MESSAGE only, no NAMES or COUNTERS fields).
 * Unknown keys are skipped: servers grow. 0, or STATUS_PROTOCOL with err. */
int rpc_decode_result(const struct rpc_reply *reply, const struct method *method, void *ret,
                      struct error *err);

/* Whether the reply is that of a request that was only queued. */
bool rpc_is_queued(const struct rpc_reply *reply);

/* Code i of a list in a result; INTERNAL for what is none that we know. i < codes->n. */
int rpc_code_at(const struct code_list *codes, uint32_t i);

/* Error i of a submit's result. 0, or STATUS_PROTOCOL with err. */
int rpc_decode_item_error(const struct message_list *errors, uint32_t i, struct msg_item_error *ret,
                          struct error *err);

#endif
