/* SPDX-License-Identifier: Apache-2.0 */
/* libtmaclient calls libtma-local through this table, to move memory of its own process without a service.
 *
 * Both libraries must have the same version. Requests and replies are the bytes that a service would receive
 * and send, except that the offset of a tensor without a region is its address in this process. One thread at
 * a time may use a session; sessions of different threads run concurrently.
 */
#ifndef CLIENT_LOCAL_DOOR_H
#define CLIENT_LOCAL_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/schema.h"
#include "proto/status.h"
#include "proto/wire/buffer.h"

struct local_session;

/* The result of a method. What it points to stays valid until the session's next request. */
union local_result {
	struct msg_info info;
	struct msg_transform_done transform_done;
	struct msg_blocks_done blocks_done;
	struct msg_region_released region_released;
	struct msg_canceled canceled;
	struct msg_plan_prepared plan_prepared;
	struct msg_table_prepared table_prepared;
	struct msg_submit_done submit_done;
	struct msg_reshard_done reshard_done;
	struct msg_explanation explanation;
	struct msg_stats stats;
	struct message_list list;
};

/* This is what requests in streams have counted. */
struct local_counts {
	uint64_t changed, beyond;
};

struct local_door {
	const char *version; /* such as "0.2.0" */

	/* Opens a session, and the engine of this process if it has none yet. Returns 0, or a negative status
	 * with err. */
	int (*open)(struct local_session **ret, struct error *err);

	/* Ends a session and its regions. NULL is allowed. */
	void (*close)(struct local_session *session);

	/* Makes the size bytes at address a region and sets *ret to its id. The caller owns the memory and
	 * keeps it mapped until the region is released or the session is closed. Returns 0, or
	 * INVALID_ARGUMENT or NO_MEMORY with err. */
	int (*map)(struct local_session *session, const void *address, uint64_t size, bool writable,
	           uint64_t *ret, struct error *err);

	/* Has the requests that follow launched into a stream, which is a CUstream of the current context of
	 * the calling thread, until stream_end. Such a request has not ended when it is answered: the device
	 * does it in the order of the stream, or, if the stream is captured, whenever the graph runs. Its
	 * tensors are memory that the device reaches. Returns 0; UNSUPPORTED without a GPU or in a build
	 * without its engine; INVALID_ARGUMENT for the stream; or an error of the driver's. After an error
	 * the session is as it was. */
	int (*stream_begin)(struct local_session *session, void *stream, struct error *err);
	void (*stream_end)(struct local_session *session);

	/* Returns whether the device of that stream reaches the memory at an address. */
	bool (*reaches)(struct local_session *session, uint64_t address);

	/* Waits for what is on the stream, and sets *ret to what has been counted since the last call, of
	 * requests of this session in the context of the stream: elements that exact casts have changed, and
	 * entries of lists in memory of the device that name no block. Returns 0, or as stream_begin does. */
	int (*stream_counts)(struct local_session *session, void *stream, struct local_counts *ret,
	                     struct error *err);

	/* Runs a request, as serve does, but without decoding a message and encoding a reply. Fields of
	 * params that are absent have their defaults. Returns 0, or a negative status with err. */
	int (*run)(struct local_session *session, enum method_id method, const union params *params,
	           union local_result *ret, struct error *err);

	/* Runs a request, which is one whole message (frame_scan), to its end, and appends the reply, if it
	 * asks for one, to *replies as a service would send it. A method that only a service has is answered
	 * with UNSUPPORTED. Returns 0, or a negative status with err: NO_MEMORY if the reply could not be
	 * made, or PROTOCOL if the bytes are not a valid message. */
	int (*serve)(struct local_session *session, const uint8_t *message, size_t len,
	             struct buffer *replies, struct error *err);
};

/* The only symbol of the library. */
__attribute__((visibility("default"))) const struct local_door *tma_local_door(void);

#endif
