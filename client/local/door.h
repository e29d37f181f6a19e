/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between libtmaclient and libtma-local. Through struct local_door, a table of functions,
 * libtmaclient moves memory of its own process without a service.
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

/* The result of a method. Anything it points to stays valid until the session's next request. */
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

/* Counts of requests in streams: elements that exact casts have changed, and entries of lists that named no
 * block. */
struct local_counts {
	uint64_t changed, beyond;
};

struct local_door {
	const char *version; /* such as "0.2.0" */

	/* Opens a session, and the engine of this process if it has none yet. ended_fd is an eventfd, or -1
	 * for none: 1 is added to it when a late request (see serve) has ended and has a reply. The caller
	 * closes it after the session. Returns 0, or a negative status with err. */
	int (*open)(struct local_session **ret, int ended_fd, struct error *err);

	/* Closes a session with its regions. Late requests that have started are waited for; others do not
	 * start. NULL is allowed. */
	void (*close)(struct local_session *session);

	/* Registers the size bytes at address as a region, and sets *ret to its id. The caller owns the
	 * memory, and must keep it mapped until the region is released or the session is closed. Returns 0,
	 * or INVALID_ARGUMENT or NO_MEMORY with err. */
	int (*map)(struct local_session *session, const void *address, uint64_t size, bool writable,
	           uint64_t *ret, struct error *err);

	/* Launches the requests that follow into a stream, a CUstream of the calling thread's current
	 * context, until stream_end. Such a request has not ended when it is answered: the device runs it in
	 * the order of the stream or, if the stream is captured, whenever the graph is launched. The device
	 * must reach its tensors. Returns 0; UNSUPPORTED if there is no GPU, or the build has no engine for
	 * GPUs; INVALID_ARGUMENT if the stream is invalid; or an error of the driver. After an error the
	 * session is unchanged. */
	int (*stream_begin)(struct local_session *session, void *stream, struct error *err);
	void (*stream_end)(struct local_session *session);

	/* Returns whether the device of the current stream reaches the memory at an address. */
	bool (*reaches)(struct local_session *session, uint64_t address);

	/* Waits for all work on the stream, and sets *ret to the counts since the last call, for requests of
	 * this session in the stream's context. Returns as stream_begin does. */
	int (*stream_counts)(struct local_session *session, void *stream, struct local_counts *ret,
	                     struct error *err);

	/* Does what serve does, but neither decodes a message nor encodes a reply, and the request is never
	 * late. Absent fields of params have their defaults. Returns 0, or a negative status with err. */
	int (*run)(struct local_session *session, enum method_id method, const union params *params,
	           union local_result *ret, struct error *err);

	/* Runs a request, which is one whole message (frame_scan), and appends the reply that a service would
	 * send to *replies, if the request asks for one. A request whose point has not been reached is late,
	 * and so is every request that moves something after it: a thread runs late requests, and `take`
	 * returns their replies. A method that only a service has is answered with UNSUPPORTED. Sets
	 * *ret_is_late to whether late requests are under way, or have replies to take. Returns 0, or a
	 * negative status with err: NO_MEMORY if the reply could not be made, PROTOCOL if the bytes are not a
	 * valid message. */
	int (*serve)(struct local_session *session, const uint8_t *message, size_t len,
	             struct buffer *replies, bool *ret_is_late, struct error *err);

	/* Appends the replies of late requests that have ended. Returns 1 if others are under way, 0 if there
	 * are none, or NO_MEMORY with err if a reply could not be made. */
	int (*take)(struct local_session *session, struct buffer *replies, struct error *err);

	/* Waits until a late request has ended since the last `take`, for at most timeout_ms milliseconds
	 * (-1: no limit), or until a signal handler has run on this thread. Returns whether one has ended. */
	bool (*await)(struct local_session *session, int timeout_ms);

	/* Cancels a late request that has not started; it is not answered then. Returns false if it has
	 * started or ended. */
	bool (*cancel)(struct local_session *session, uint32_t msgid);
};

/* The only symbol that the library exports. */
__attribute__((visibility("default"))) const struct local_door *tma_local_door(void);

#endif
