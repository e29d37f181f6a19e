/* SPDX-License-Identifier: Apache-2.0 */
/* A call that waits may use memory of the host on a device. A tensor that the device does not reach has a
 * copy in the device's memory while its request runs, and the request is changed to use that. What is read is
 * brought to its copy first; what is written is brought back from it in the end. */
#ifndef CLIENT_LOCAL_STAGING_H
#define CLIENT_LOCAL_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "packing.h"
#include "session.h"

#define STAGING_MOST 6 /* tensors of a request */

/* This is a tensor of the host, or blocks of it, with its copy. */
struct staged {
	union {
		struct local_packed tensor;
		struct local_packed_blocks blocks;
	};
	bool is_blocks;
	bool is_written;
	bool is_pinned; /* The copy engine reaches it, which takes its bytes as they are. */
	uint64_t copy;  /* the address of the copy's first byte */
};

struct local_staging {
	struct local_session *session;
	uint64_t host_threads;
	uint32_t n;
	struct staged staged[STAGING_MOST];
};

/* Returns whether a request that waits has such a tensor, a negative status with err, or 0. Tensors without
 * elements, and those that the request has not, do not count. */
int local_is_staged(struct local_session *session, const struct msg_transform *t,
                    const struct request_places *places, struct error *err);

/* Checks that the device reaches all of the request's tensors, if it runs on one. Errors are those of
 * local_check_reach. */
int local_check_all_reach(const struct local_session *session, const struct msg_transform *t,
                          const struct request_places *places, struct error *err);

/* Has a tensor of a request use its copy. */
void local_use_copy(struct msg_tensor *tensor, uint64_t copy, const struct local_packed *packed);

/* Begins with no tensor. local_staging_end must follow. */
void local_staging_init(struct local_staging *staging, struct local_session *session, uint64_t host_threads);

/* Makes copies of the transform's tensors that lie on the host, and changes the transform to use them.
 * has_sides is false if dst and src are left as they are. Returns 0, NO_MEMORY if the device has no room for
 * a copy, or another error of the driver's. */
int local_stage_tensors(struct local_staging *staging, struct msg_transform *t,
                        const struct request_places *places, bool has_sides, struct error *err);

/* Makes a copy of blocks of the host, and sets *ret to its address. name: what errors call them. */
int local_stage_blocks(struct local_staging *staging, const struct local_packed_blocks *packed,
                       bool is_written, const char *name, uint64_t *ret, struct error *err);

/* Brings back what was written, unless the request has failed with r before it wrote anything, and frees the
 * copies. Returns r, or the error of bringing back. */
int local_staging_end(struct local_staging *staging, int r, struct error *err);

/* ---- staged_blocks.c ---------------------------------------------------------------------------------- */

/* This is a gather or scatter on a device with memory of the host. If one of its sides lies there, only the
 * blocks that the list names travel, and the list is changed to name those of the other side. */
struct local_staged_blocks {
	struct local_staging staging;
	struct msg_blocks changed; /* the request that runs between the copies */
	bool scatter;              /* true for a scatter, false for a gather */
	bool is_list_changed;
	int64_t *words;          /* the list of the changed request, and the other one */
	uint64_t passed, beyond; /* entries of the list that name no block, if it has been changed */
};

/* Makes the copies. The request and its list, which have been checked, and where its tensors lie must live
 * until local_staging_end, and local_staged_blocks_deinit must follow that in any case. Returns 1; 0 if the
 * device reaches everything; or a negative status with err. */
int local_staged_blocks_init(struct local_staged_blocks *ret, struct local_session *session,
                             const struct msg_blocks *p, const struct engine_blocks *blocks,
                             const struct request_places *places, struct error *err);
void local_staged_blocks_deinit(struct local_staged_blocks *staged);

#endif
