/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a view from file to file through the service, a box at a time, in bounded memory.
 *
 * A pipe on either side is read or written as the boxes follow each other, where they do so in its order;
 * else it is spooled.
 *
 * Workers share the boxes. Each has a connection and two regions of its own and reads a box's source, has it
 * transformed, writes its output; while one waits for the service or the disk, the others go on. A
 * service that starts again is waited for, and what it had not answered is asked anew. The first failure
 * stops all.
 */
#ifndef CLIENT_TMACTL_COPY_MOVER_H
#define CLIENT_TMACTL_COPY_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "box.h"
#include "client/tmactl/cast/cast.h"
#include "client/tmactl/npy/output.h"
#include "client/tmactl/npy/source.h"
#include "client/tmactl/stop.h"
#include "client/tmactl/tmactl.h"

#define MOVER_MIN_MEMORY (1024 * 1024)

struct mover_job {
	const struct view *view;
	const uint8_t *fill;     /* an element's bits for mode constant */
	const struct cast *cast; /* how elements are converted */
	struct tma_number value; /* for mode constant, where they are */
	struct source *source;
	uint64_t source_end;   /* byte of it where its array ends */
	uint64_t source_items; /* of the array, for the errors */
	struct output *output;
	uint64_t header_bytes;       /* of the output, before its data */
	struct output *scale_output; /* of a view that has blocks; written at any place */
	uint64_t scale_header_bytes;
	struct stop *stop;
	uint64_t memory;               /* for all boxes under way */
	const struct tma_order *order; /* of the requests; NULL: none */
};

struct mover_result {
	char path[24];       /* the family of the largest box */
	uint64_t bytes;      /* read plus written by the engine */
	uint64_t ns;         /* while boxes were with the service */
	uint32_t reconnects; /* times that the service came back, however many workers it was gone from */
};

/* Called now and then on the caller's thread; -1 with f set stops the job. */
typedef int mover_progress_fn(void *arg, double done, struct failure *f);

/* t says where the service is. */
int mover_run(const struct tmactl *t, const struct mover_job *job, mover_progress_fn *progress, void *arg,
              struct mover_result *ret, struct failure *f);

#endif
