/* SPDX-License-Identifier: Apache-2.0 */
/* MessagePack-RPC: converts between messages and structs, by the tables of schema.h.
 *
 * The codec behind it (codec.c) walks field tables, so that missing, unknown, duplicate and mistyped fields
 * are handled in one place. A decoder owns memory that it reuses for each message: what a call has decoded
 * stays valid until the next call with the same decoder, and only as long as the bytes of the message.
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

/* Tells a server what to do with a message. */
enum rpc_outcome {
	RPC_DISPATCH, /* run a request for ret->method, whose parameters are decoded */
	RPC_REFUSE,   /* answer a request with err; ret->msgid is set, and so is ret->method if it is known */
	RPC_RING,     /* read the connection's submission ring, which has new entries (notification ring) */
	RPC_IGNORE,   /* ignore another notification */
	RPC_BROKEN,   /* close the connection: the message is not MessagePack-RPC, and err says why */
};

struct rpc_request {
	uint32_t msgid;
	const struct method *method; /* NULL: unknown */
	union params params;         /* valid after RPC_DISPATCH */
};

/* Decodes one whole message (frame_scan). Errors: STATUS_UNSUPPORTED for an unknown method;
 * STATUS_INVALID_ARGUMENT for parameters that violate the schema, with a message that names the field by its
 * path ("src.dtype"). */
enum rpc_outcome rpc_decode_request(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                    struct rpc_request *ret, struct error *err);

/* Results of rpc_find_msgid, which finds the msgid of a message whose first len bytes are known. */
enum rpc_head {
	RPC_HEAD_REQUEST, /* The message is a request, and *ret is its msgid. */
	RPC_HEAD_SHORT,   /* More bytes are needed. */
	RPC_HEAD_OTHER,   /* The message is not a request. */
};
enum rpc_head rpc_find_msgid(const uint8_t *data, size_t len, uint32_t *ret);

/* rpc_find_msgid never needs more bytes than this. */
#define RPC_HEAD_BYTES 23

/* Releases the memory of the last message now, rather than when the next one is decoded. Item lists of the
 * request must not be used afterwards. */
void rpc_decoder_rest(struct rpc_decoder *decoder);

/* Decodes item i of a submit; i < items->n. Errors are like those of rpc_decode_request, with paths such as
 * "items[3].src.dtype". */
int rpc_decode_item(const struct item_list *items, uint32_t i, struct submit_item *ret, struct error *err);

/* Decodes part i of a region_register; i < parts->n. Errors are like those of rpc_decode_request, with paths
 * such as "parts[3].size". */
int rpc_decode_part(const struct message_list *parts, uint32_t i, struct msg_part *ret, struct error *err);

/* Decodes tensor i of a transform's further_dst; i < list->n. Errors are like those of rpc_decode_request,
 * with paths such as "further_dst[3].dtype". */
int rpc_decode_further_dst(const struct message_list *list, uint32_t i, struct msg_tensor *ret,
                           struct error *err);

/* Decodes slice i of one list of a reshard, whose field is called name; i < slices->n. Errors are like those
 * of rpc_decode_request, with paths such as "sources[3].tensor.dtype". */
int rpc_decode_slice(const struct message_list *slices, const char *name, uint32_t i, struct msg_slice *ret,
                     struct error *err);

/* Append a reply: rpc_encode_result for a request that succeeded, rpc_encode_error for one that failed.
 * result is the C struct of method->result (RESULT_MESSAGE), a struct message_list (RESULT_LIST) or NULL
 * (RESULT_TRUE). All rpc_encode functions return 0, or STATUS_NO_MEMORY without having appended anything. */
int rpc_encode_result(struct buffer *b, uint32_t msgid, const struct method *method, const void *result);
int rpc_encode_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* Appends an error after which the connection is closed: its details contain {"ends": true}. */
int rpc_encode_last_error(struct buffer *b, uint32_t msgid, const struct error *error);

/* Appends the first answer to a request with reply="queued": {"queued": true}. */
int rpc_encode_queued(struct buffer *b, uint32_t msgid);

/* Appends the notification done, which reports the end of such a request: [2, "done", [msgid, error,
 * result]]. error is NULL if the request succeeded; otherwise result is not used. */
int rpc_encode_done(struct buffer *b, uint32_t msgid, const struct method *method, const void *result,
                    const struct error *error);

/* Appends a request, on the client's side. params is the C struct of method->params, or NULL if the method
 * has no fields. OPTIONAL fields whose bit in `has` is not set are left out. */
int rpc_encode_request(struct buffer *b, uint32_t msgid, const struct method *method, const void *params);

/* Appends the notification by which a client says that its submission ring has new entries. */
int rpc_encode_ring(struct buffer *b);

struct rpc_reply {
	uint32_t msgid;
	/* The message is the notification done of a request that was answered "queued" before. */
	bool is_done;
	struct error error;   /* status 0: the request succeeded */
	bool ends;            /* The service closes the connection after this error. */
	const void *document; /* the result, a msgpack_object of the decoder; for client/document.c */
};

/* Decodes a reply. Returns 0; 1 for a notification other than done, which the caller drops; or a negative
 * status with err, PROTOCOL if the message is not a reply, [1, msgid, error, result]. */
int rpc_decode_reply(struct rpc_decoder *decoder, const uint8_t *data, size_t len, struct rpc_reply *ret,
                     struct error *err);

/* Decodes the reply's result into the struct of method->result, for methods of RESULT_MESSAGE without NAMES
 * or COUNTERS fields. Unknown keys are skipped, because newer servers may send more. Returns 0, or
 * STATUS_PROTOCOL with err. */
int rpc_decode_result(const struct rpc_reply *reply, const struct method *method, void *ret,
                      struct error *err);

/* Returns whether the reply says that the request has only been queued. */
bool rpc_is_queued(const struct rpc_reply *reply);

/* Returns code i of a list in a result, or INTERNAL if the code is unknown; i < codes->n. */
int rpc_code_at(const struct code_list *codes, uint32_t i);

/* Decodes error i of a submit's result. Returns 0, or STATUS_PROTOCOL with err. */
int rpc_decode_item_error(const struct message_list *errors, uint32_t i, struct msg_item_error *ret,
                          struct error *err);

#endif
