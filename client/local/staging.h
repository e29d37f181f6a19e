/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory in requests that run on a device. Only calls that wait accept it. Each tensor that the device
 * does not reach gets a copy in the device's memory while its request runs, and the request is changed to use
 * the copy. Tensors that are read are copied to the device first; those that are written are copied back at
 * the end. */
#ifndef CLIENT_LOCAL_STAGING_H
#define CLIENT_LOCAL_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "packing.h"
#include "session.h"

#define STAGING_MOST 6 /* maximum number of tensors of a request */

/* A tensor in host memory, or blocks of one, with its copy. */
struct staged {
	union {
		struct local_packed tensor;
		struct local_packed_blocks blocks;
	};
	bool is_blocks;
	bool is_written;
	/* The copy engine reaches the tensor's memory, and copies its bytes without packing. */
	bool is_pinned;
	uint64_t copy; /* address of the copy's first byte on the device */
};

struct local_staging {
	struct local_session *session;
	uint64_t host_threads;
	uint32_t n;
	struct staged staged[STAGING_MOST];
};

/* Returns 1 if a tensor of the request needs a copy, 0 if none does, or a negative status with err. Tensors
 * without elements need none. */
int local_is_staged(struct local_session *session, const struct msg_transform *t,
                    const struct request_places *places, struct error *err);

/* If the request runs on a device, checks that it reaches all of the request's tensors. Returns as
 * local_check_reach does. */
int local_check_all_reach(const struct local_session *session, const struct msg_transform *t,
                          const struct request_places *places, struct error *err);

/* Makes the tensor of a request use its copy, which begins at the device's address `copy` and is laid out as
 * `packed` says. */
void local_use_copy(struct msg_tensor *tensor, uint64_t copy, const struct local_packed *packed);

/* Begins without any copies. host_threads limits the threads that pack chunks (0: no limit). The caller has
 * to call local_staging_end. */
void local_staging_init(struct local_staging *staging, struct local_session *session, uint64_t host_threads);

/* Makes copies of those of the transform's tensors that need one, and changes the transform to use the
 * copies. has_sides is false if dst and src are to be left alone. Returns 0; NO_MEMORY if the device has no
 * memory for a copy; or another error of the driver. */
int local_stage_tensors(struct local_staging *staging, struct msg_transform *t,
                        const struct request_places *places, bool has_sides, struct error *err);

/* Makes a copy of blocks in host memory, and sets *ret to its address. If is_written is true, the blocks are
 * copied back at the end, not in at once. name is what errors call the blocks. */
int local_stage_blocks(struct local_staging *staging, const struct local_packed_blocks *packed,
                       bool is_written, const char *name, uint64_t *ret, struct error *err);

/* Ends the staging of a request that has ended with status r. Copies back what the request has written,
 * unless it failed before it wrote anything, and frees the copies. Returns r, or the error of copying
 * back. */
int local_staging_end(struct local_staging *staging, int r, struct error *err);

/* ---- staged_blocks.c ---------------------------------------------------------------------------------- */

/* A gather or scatter that runs on a device with tensors in host memory. If one of its sides lies there, only
 * the blocks that the list names are copied, and a changed list names those of the other side. */
struct local_staged_blocks {
	struct local_staging staging;
	struct msg_blocks changed; /* the request that runs with the copies */
	bool scatter;              /* true if `changed` is a scatter, false if it is a gather */
	bool is_list_changed;
	int64_t *words; /* the list of the changed request, and that of the copied blocks; owned */
	/* if is_list_changed: numbers of entries of the original list that were -1, and that were out of
	 * range */
	uint64_t passed, beyond;
};

/* Makes the copies. The request and its list must have been checked; they and the places of the tensors must
 * live until local_staging_end. The caller calls that and then local_staged_blocks_deinit, whatever this
 * returns: 1; 0 if the device reaches everything; or a negative status with err. */
int local_staged_blocks_init(struct local_staged_blocks *ret, struct local_session *session,
                             const struct msg_blocks *p, const struct engine_blocks *blocks,
                             const struct request_places *places, struct error *err);
void local_staged_blocks_deinit(struct local_staged_blocks *staged);

#endif
