/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of engines in processes: engines in this process and in processes of their own, several
 * at once, each with an owner, and jobs. The processes of engines run this same program. Failures are
 * Criterion's. */
#ifndef TESTS_UNIT_PROCESS_RIG_H
#define TESTS_UNIT_PROCESS_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernels/engine.h"
#include "kernels/process/process.h"
#include "tests/support/oracle.h"

/* The engines that can be opened, which each test program defines. An entry without a name ends the list. */
extern const struct engine_process_opener rig_openers[];

/* Name (argv[0]) under which this program only starts an engine, as its front, and writes the pid of the
 * engine's process to standard output. */
#define RIG_FRONT "rig-front"

/* The CPU engine does not finish opening while the file named by $HOLD_BACK exists, nor mapping memory of
 * this size while the file named by $HOLD_MAPPING exists. */
#define RIG_HELD_BYTES ((uint64_t)3 << 16)

struct rig {
	struct engine *engine;
	struct engine_owner owner;
	int wakeups; /* an eventfd that the engine signals when jobs have come back */
	bool drives;
	uint64_t n_done;
};

/* A job with the transform that it runs. */
struct work {
	struct engine_job job;
	struct rig *rig;
	struct transform transform;
};

/* Opens an engine in this process. */
void rig_open_here(struct rig *rig, const char *name, const struct engine_options *options);

/* Opens an engine in a process of its own. Tests that open several call its two steps, rig_start and
 * rig_await. */
void rig_open(struct rig *rig, const char *name, const struct engine_options *options);
void rig_start(struct rig *rig, const char *name, const struct engine_options *options);
void rig_await(struct rig *rig);

/* Closes the engine. Fails unless its process has ended. */
void rig_close(struct rig *rig);

/* Returns the process that runs the engine or is about to, or 0 if there is none. */
pid_t rig_child(const struct rig *rig);

/* Waits until n jobs in all have come back. */
void rig_wait(struct rig *rig, uint64_t n);

/* Takes one turn as the owner, after at most ms milliseconds. */
void rig_turn(struct rig *rig, int ms);

/* Waits until the engine has been lost `losses` times in all, and is back. */
void rig_wait_for_return(struct rig *rig, uint32_t losses);

struct engine_memory *rig_make(struct rig *rig, enum region_kind kind, uint64_t size);

/* Maps a file of the host from its start. */
struct engine_memory *rig_map(struct rig *rig, int fd, uint64_t size);

/* Returns a memfd of zeros. */
int rig_file(uint64_t size);

/* Makes a job of any transform. Offsets are those of elements [0, ..., 0] in the regions, in bytes. */
void work_init_spec(struct work *work, struct rig *rig, const struct transform_spec *spec,
                    struct engine_memory *dst, uint64_t dst_offset, struct engine_memory *src,
                    uint64_t src_offset);

/* Makes a job that copies or, with perm 1, 0, transposes float32 [n, n]. */
void work_init(struct work *work, struct rig *rig, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Makes a job that copies bytes. */
void work_init_copy(struct work *work, struct rig *rig, int64_t bytes, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset);

#endif
