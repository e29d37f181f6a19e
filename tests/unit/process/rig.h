/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of engines in processes share: engines of either sort, several at once, with an owner each, and
 * jobs. This program is also what runs in the processes. Failures are Criterion's. */
#ifndef TESTS_UNIT_PROCESS_RIG_H
#define TESTS_UNIT_PROCESS_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernels/engine.h"
#include "kernels/process/process.h"
#include "tests/support/oracle.h"

/* What may be opened; the program defines it. The list ends with one that has no name. */
extern const struct engine_process_opener rig_openers[];

/* As whom this program is a front that does nothing but to start an engine: it writes the pid of the engine's
 * process to its standard output. */
#define RIG_FRONT "rig-front"

/* While $HOLD_BACK names a file that is there, the CPU engine does not open; $HOLD_MAPPING: it maps no memory
 * of this size. */
#define RIG_HELD_BYTES ((uint64_t)3 << 16)

struct rig {
	struct engine *engine;
	struct engine_owner owner;
	int wakeups; /* an eventfd */
	bool drives;
	uint64_t n_done;
};

/* A work is a job with its transform. */
struct work {
	struct engine_job job;
	struct rig *rig;
	struct transform transform;
};

/* Opens an engine in this process. */
void rig_open_here(struct rig *rig, const char *name, const struct engine_options *options);

/* Opens an engine in a process of its own. rig_start and rig_await are the two steps of that, for tests
 * that open several. */
void rig_open(struct rig *rig, const char *name, const struct engine_options *options);
void rig_start(struct rig *rig, const char *name, const struct engine_options *options);
void rig_await(struct rig *rig);

/* Its process has to have ended. */
void rig_close(struct rig *rig);

/* Returns the process that runs the engine, or is to, or 0 if there is none. */
pid_t rig_child(const struct rig *rig);

/* Waits until n jobs have come back in all. */
void rig_wait(struct rig *rig, uint64_t n);

/* Takes one turn of the owner's, after at most so many ms. */
void rig_turn(struct rig *rig, int ms);

/* Waits until the engine has been lost so many times, and is back. */
void rig_wait_for_return(struct rig *rig, uint32_t losses);

struct engine_memory *rig_make(struct rig *rig, enum region_kind kind, uint64_t size);

/* Maps a file of the host's from its start. */
struct engine_memory *rig_map(struct rig *rig, int fd, uint64_t size);

/* Returns a memfd of zeros. */
int rig_file(uint64_t size);

/* Makes a job of any transform. Offsets are of elements [0, ..., 0] in the regions. */
void work_init_spec(struct work *work, struct rig *rig, const struct transform_spec *spec,
                    struct engine_memory *dst, uint64_t dst_offset, struct engine_memory *src,
                    uint64_t src_offset);

/* Makes a job of float32 [n, n], with perm 1, 0 if it is transposed. */
void work_init(struct work *work, struct rig *rig, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Makes a job that copies bytes. */
void work_init_copy(struct work *work, struct rig *rig, int64_t bytes, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset);

#endif
