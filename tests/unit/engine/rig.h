/* SPDX-License-Identifier: Apache-2.0 */
/* The tests at kernels/engine.h share this: the engines that they run against, in this process and in one of
 * their own, and memory and jobs of whichever engine is open. One engine is open at a time. This program is
 * also what runs in the processes of engines. Failures are Criterion's.
 *
 * A test has a row for each engine and case. Everything it asserts holds for all engines alike, or its table
 * says for which.
 */
#ifndef TESTS_UNIT_ENGINE_RIG_H
#define TESTS_UNIT_ENGINE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine.h"

enum rig_engine {
	RIG_CPU,
	RIG_CPU_PIECES,       /* threads move even small jobs, in pieces of 4 KiB */
	RIG_CPU_PROCESS,      /* runs in a process of its own */
	RIG_CPU_PROCESS_NAPS, /* likewise in pieces, for an owner that drives, with naps between looks at
	                         words */
	RIG_CUDA,             /* has small limits (small_limits.h) */
	RIG_CUDA_DRIVEN,      /* has its usual limits, and an owner that drives */
	RIG_CUDA_PROCESS,     /* has small limits and runs in a process of its own */
	RIG_ENGINES
};

bool rig_is_cuda(enum rig_engine which);
bool rig_is_process(enum rig_engine which);

/* ---- Rows --------------------------------------------------------------------------------------------- */

/* A row runs one case of a test's table against one engine. */
struct row {
	enum rig_engine engine;
	uint32_t i;
};

/* Fills rows with each of n cases for each engine that this build has and that suits the case, and returns
 * how many there are. suits may be NULL. */
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

/* Assertions name the engine and the case by this. */
extern char rig_text[160];

/* A CUDA engine with small limits in this process has this many bytes of scratch memory. It must be set
 * before the engine is opened. */
extern uint64_t rig_scratch_bytes;

void rig_open(enum rig_engine which, const char *name);

/* Fails unless everything has been given back. */
void rig_close(void);

/* ---- Memory ------------------------------------------------------------------------------------------- */

/* This is memory that the engine has mapped, and that the test reads and writes. */
struct memory {
	struct engine_memory *of;
	unsigned char *bytes;
	uint64_t size;
	int fd;       /* of its file, or -1 */
	void *mapped; /* the rig's own mapping; NULL if the bytes lie in the engine's */
};

/* Makes zeroed memory of a kind. The CPU engine has memfd alone, and cuda_ipc is for an engine in this
 * process. */
struct memory memory_new(enum region_kind kind, uint64_t size);

/* Maps a file as a client's, which a test may make shorter. */
struct memory memory_of_file(uint64_t size);

void memory_free(struct memory *memory);

/* Returns the kind that the engine makes unless it is told another. */
enum region_kind memory_kind(void);

#define RIG_LAYERS 5

/* Each layer of one side of a list of blocks lies in a memory of its own. */
struct layers {
	struct layer_table table;
	struct layer_place places[RIG_LAYERS];
	struct engine_memory *memories[RIG_LAYERS];
	int64_t distances[RIG_LAYERS];
	uint32_t order[RIG_LAYERS];
};

/* Block 0 of layer l lies at offset[l] in memory[l]. *ret stays where it is. */
void layers_init(struct layers *ret, uint32_t n, const struct memory *memory, const uint64_t *offset);

/* These read and set a word of a timeline. Setting it wakes whoever sleeps on it. */
uint64_t word_get(const struct memory *memory, uint64_t offset);
void word_set(const struct memory *memory, uint64_t offset, uint64_t value);

/* ---- Jobs --------------------------------------------------------------------------------------------- */

#define RIG_MOST_JOBS 512

/* Jobs stand here in the order in which they came back, once for each time that they were submitted. */
extern struct engine_job *done[RIG_MOST_JOBS];
extern size_t n_done;

struct work {
	struct engine_job job;
	bool is_submitted;
};

/* Makes a job of any transform. Offsets are of elements [0, ..., 0]; blocks may be NULL. */
void work_init(struct work *work, const struct transform_spec *spec, struct engine_blocks *blocks,
               const struct memory *dst, uint64_t dst_offset, const struct memory *src, uint64_t src_offset);

/* Makes a job that copies or transposes float32 [n, n]. */
void work_init_square(struct work *work, int64_t n, bool transposed, const struct memory *dst,
                      const struct memory *src);

/* Makes a job that copies bytes. */
void work_init_copy(struct work *work, int64_t bytes, const struct memory *dst, uint64_t dst_offset,
                    const struct memory *src, uint64_t src_offset);

/* Makes one job of n moves, each of which another work has been initialized with. */
void work_init_batch(struct work *work, struct engine_move *moves, uint32_t n);

/* Frees what works have been initialized with so far; rig_close does so, too. */
void works_free(void);

void submit(struct engine_stream *stream, struct work *work);

/* Lets the engine learn of what was submitted, for tests that do not go on to wait_done. */
void drive(void);

/* Waits until n jobs have come back in all. */
void wait_done(size_t n);

/* Submits one job alone and waits for it. */
int run(struct engine_stream *stream, struct work *work);

/* Cancels a job that has not started. An engine in a process of its own that does not answer in time is asked
 * again, until the job is back: it may have been cancelled all the same. */
void cancel(struct engine_stream *stream, struct work *work);

#endif
