/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of kernels/engine.h: the engines that they run against, in this process and in one of
 * their own, and memory and jobs of the open engine. One engine is open at a time. The processes of engines
 * run this same program. Failures are Criterion's.
 * A test has a row for each engine and case. Its assertions hold for all engines alike, unless the test's
 * table says for which. */
#ifndef TESTS_UNIT_ENGINE_RIG_H
#define TESTS_UNIT_ENGINE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine.h"

enum rig_engine {
	RIG_CPU,
	RIG_CPU_PIECES,  /* in this process; threads move even small jobs, in pieces of 4 KiB */
	RIG_CPU_PROCESS, /* in a process of its own */
	/* Runs in a process of its own, in pieces of 4 KiB, driven by its owner, with pauses between polls of
	 * words. */
	RIG_CPU_PROCESS_NAPS,
	RIG_CUDA,         /* in this process, with small limits (small_limits.h) */
	RIG_CUDA_DRIVEN,  /* in this process, with its usual limits and driven by its owner */
	RIG_CUDA_PROCESS, /* in a process of its own, with small limits */
	RIG_ENGINES
};

bool rig_is_cuda(enum rig_engine which);
bool rig_is_process(enum rig_engine which);

/* ---- Rows --------------------------------------------------------------------------------------------- */

/* One case of a test's table on one engine. */
struct row {
	enum rig_engine engine;
	uint32_t i;
};

/* Fills rows with a row for each of n cases on each engine that this build has and that suits the case, and
 * returns how many there are. suits may be NULL, if every engine suits every case. */
size_t rig_rows(struct row *rows, uint32_t n, bool (*suits)(enum rig_engine which, uint32_t i));

#define RIG_ROWS(n, suits)                                        \
	({                                                        \
		static struct row rig_all[RIG_ENGINES * (n)];     \
		const size_t rig_n = rig_rows(rig_all, n, suits); \
		cr_make_param_array(struct row, rig_all, rig_n);  \
	})

/* ---- The engine --------------------------------------------------------------------------------------- */

extern struct engine *engine;
extern struct engine_owner owner;

/* Names the engine and the case; assertions print it. */
extern char rig_text[160];

/* Size of the scratch memory of a CUDA engine with small limits in this process. Set it before the engine is
 * opened. */
extern uint64_t rig_scratch_bytes;

void rig_open(enum rig_engine which, const char *name);

/* Closes the engine. Fails unless everything has been given back. */
void rig_close(void);

/* ---- Memory ------------------------------------------------------------------------------------------- */

/* Memory that the engine has mapped, and that the test reads and writes. */
struct memory {
	struct engine_memory *of;
	unsigned char *bytes;
	uint64_t size;
	int fd;       /* fd of its file; -1: none */
	void *mapped; /* mapping that the rig has made; NULL if bytes points into the engine's */
};

/* Makes zeroed memory of a kind. The CPU engine has memfd only, and only an engine in this process takes
 * cuda_ipc. */
struct memory memory_new(enum region_kind kind, uint64_t size);

/* Maps a file as a client's, which a test may make shorter. */
struct memory memory_of_file(uint64_t size);

void memory_free(struct memory *memory);

/* Returns the kind of memory that the engine makes by default. */
enum region_kind memory_kind(void);

#define RIG_LAYERS 5

/* The layers of one side of a list of blocks, each in a memory of its own. */
struct layers {
	struct layer_table table;
	struct layer_place places[RIG_LAYERS];
	struct engine_memory *memories[RIG_LAYERS];
	int64_t distances[RIG_LAYERS];
	uint32_t order[RIG_LAYERS];
};

/* Sets *ret to n layers, where block 0 of layer l lies at offset[l] in memory[l]. *ret must not be moved
 * afterwards. */
void layers_init(struct layers *ret, uint32_t n, const struct memory *memory, const uint64_t *offset);

/* These read and set a word of a timeline. Setting it wakes all who sleep on it. */
uint64_t word_get(const struct memory *memory, uint64_t offset);
void word_set(const struct memory *memory, uint64_t offset, uint64_t value);

/* ---- Jobs --------------------------------------------------------------------------------------------- */

#define RIG_MOST_JOBS 512

/* Jobs in the order in which they came back, once for each time that they were submitted. */
extern struct engine_job *done[RIG_MOST_JOBS];
extern size_t n_done;

struct work {
	struct engine_job job;
	bool is_submitted;
};

/* Makes a job of any transform. Offsets are those of elements [0, ..., 0], in bytes. blocks may be NULL. */
void work_init(struct work *work, const struct transform_spec *spec, struct engine_blocks *blocks,
               const struct memory *dst, uint64_t dst_offset, const struct memory *src, uint64_t src_offset);

/* Makes a job that copies or transposes float32 [n, n]. */
void work_init_square(struct work *work, int64_t n, bool transposed, const struct memory *dst,
                      const struct memory *src);

/* Makes a job that copies bytes. */
void work_init_copy(struct work *work, int64_t bytes, const struct memory *dst, uint64_t dst_offset,
                    const struct memory *src, uint64_t src_offset);

/* Makes one job of n moves, each of which has been initialized as another work's. */
void work_init_batch(struct work *work, struct engine_move *moves, uint32_t n);

/* Frees what has been allocated for works so far; rig_close does so, too. */
void works_free(void);

void submit(struct engine_stream *stream, struct work *work);

/* Makes the engine notice what was submitted; only tests that do not call wait_done next need it. */
void drive(void);

/* Waits until n jobs in all have come back. */
void wait_done(size_t n);

/* Submits one job alone and waits for it. */
int run(struct engine_stream *stream, struct work *work);

/* Cancels a job that has not started. If an engine's process does not answer in time, it is asked again until
 * the job has come back, because it may have cancelled the job all the same. */
void cancel(struct engine_stream *stream, struct work *work);

#endif
