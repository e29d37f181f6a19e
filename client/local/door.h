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
#include "proto/wire/frame.h"

struct local_session;

/* A method has one of these results. What it points to stays valid until the session's next request. */
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

/* Requests in streams have counted these. */
struct local_counts {
	uint64_t changed, beyond;
};

struct local_door {
	const char *version; /* such as "0.2.0" */

	/* Opens a session, and the engine of this process if it has none yet. ended_fd is an eventfd, to
	 * which 1 is added when a late request has ended and has a reply (serve), or -1; it is closed after
	 * the session by the caller. Returns 0, or a negative status with err. */
	int (*open)(struct local_session **ret, int ended_fd, struct error *err);

	/* Ends a session and its regions, after late requests that have started; others do not start. NULL is
	 * allowed. */
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

	/* Runs a request, which is one whole message (frame_scan), and appends the reply, if it asks for one,
	 * to *replies as a service would send it. A request whose point has not come is late, and so is what
	 * moves something after it: a thread runs them, and their replies are taken later. A method that only
	 * a service has is answered with UNSUPPORTED. Sets *ret_is_late to whether there are late requests of
	 * which take has something to tell, or will have. Returns 0, or a negative status with err: NO_MEMORY
	 * if the reply could not be made, or PROTOCOL if the bytes are not a valid message. */
	int (*serve)(struct local_session *session, const uint8_t *message, size_t len,
	             struct buffer *replies, bool *ret_is_late, struct error *err);

	/* Appends the replies of late requests that have ended. Returns 1 if others are under way, 0 if there
	 * are none, or NO_MEMORY with err if a reply could not be made. */
	int (*take)(struct local_session *session, struct buffer *replies, struct error *err);

	/* Waits until a late request has ended that take has not been called for since, for so many
	 * milliseconds at most (-1: any number), or until a signal handler has run on this thread. Returns
	 * whether one has. */
	bool (*await)(struct local_session *session, int timeout_ms);

	/* Takes back a late request, which is not answered then. Returns false if it has started, or has
	 * ended. */
	bool (*cancel)(struct local_session *session, uint32_t msgid);
};

/* This is the only symbol that the library exports. */
__attribute__((visibility("default"))) const struct local_door *tma_local_door(void);

#endif
