/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a view from file to file through the service, box by box (box.h), in bounded memory.
 *
 * A sequential source (source.h) and an output that is a pipe are streamed if the boxes come in the order of
 * their bytes, and otherwise spooled.
 *
 * Worker threads share the boxes. Each has its own connection and regions. It reads the source of a box, lets
 * the service transform it, and writes its output; while one worker waits for the service or the disk, the
 * others go on. If the service goes away, a worker waits for it to come back and repeats the request that had
 * no answer. The first failure stops all workers.
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

/* The view to move, and where from and to. The caller owns everything that it points to. */
struct mover_job {
	const struct view *view;
	const uint8_t *fill;     /* bits of the element that mode constant adds, if nothing is converted */
	const struct cast *cast; /* how elements are converted, if they are */
	struct tma_number value; /* number that mode constant adds if elements are converted */
	struct source *source;
	uint64_t source_end;   /* byte of the source at which its array ends */
	uint64_t source_items; /* items of the array, for messages */
	struct output *output;
	uint64_t header_bytes;       /* bytes of the output's header, after which its data begins */
	struct output *scale_output; /* output of the scales, if the view has them; a pipe is spooled */
	uint64_t scale_header_bytes;
	struct stop *stop;             /* looked at by all workers, and set if one of them fails */
	uint64_t memory;               /* bytes for all boxes in flight and for spooled pipes */
	const struct tma_order *order; /* priority and limits of requests; NULL: the defaults */
};

struct mover_result {
	char path[24];       /* kernel family that moved the largest box */
	uint64_t bytes;      /* read plus written by the engine */
	uint64_t ns;         /* time during which at least one box was with the service */
	uint32_t reconnects; /* times that the service came back, counted once for all workers */
};

/* Called several times a second on the caller's thread with the part of the job that is done, from 0 to 1.
 * Returns 0, or -1 with f set to stop the job. */
typedef int mover_progress_fn(void *arg, double done, struct failure *f);

/* Moves the whole view. t says where to connect. *ret is set also if it fails. All workers have ended on
 * return. */
int mover_run(const struct tmactl *t, const struct mover_job *job, mover_progress_fn *progress, void *arg,
              struct mover_result *ret, struct failure *f);

#endif
