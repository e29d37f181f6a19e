/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of this process, and the streams on which sessions use them. The first session opens the CPU's
 * engine, which stays until the process ends. A child of fork opens one of its own, because it does not have
 * its parent's threads. Engines of CUDA contexts serve the program's own streams (kernels/engine.h).
 *
 * Only one thread at a time may submit jobs to an engine, or reap those that have ended. For the CPU's
 * engine, that is the thread that holds the lock in engine.c. Small moves run on the thread that submits
 * them; a thread that waits for a large move releases the lock meanwhile.
 */
#ifndef CLIENT_LOCAL_ENGINE_H
#define CLIENT_LOCAL_ENGINE_H

#include "kernels/engine.h"

/* The counts of a device, and what they were when they were last read. */
struct local_counters {
	uint64_t address; /* address of a struct engine_counts on the device */
	struct engine_counts seen;
};

/* The stream in which the requests of a session run: jobs run to their end on a stream of the CPU's engine,
 * or are launched into the program's stream. One thread at a time may use a local_stream. */
struct local_stream {
	struct engine_stream *stream;
	/* the `life` of the engine that `stream` belongs to (engine.c); another value: the process has forked
	 * since */
	uint64_t life;

	struct engine *device; /* engine of the program's stream; NULL: requests run on the CPU's engine */
	void *cuda_stream;     /* the program's stream */
	struct local_counters *counters; /* the counts to which `device` adds */
	bool is_awaited;                 /* local_stream_run waits until a job on `device` has ended. */
	bool has_wait;         /* The program's stream has to wait for a word before the next job. */
	uint64_t wait_address; /* address of the word on `device` */
	uint64_t wait_value;
};

/* Opens the CPU's engine if necessary, and a stream of it. Sets only ret->stream and ret->life. Returns 0, or
 * a negative status with err. */
int local_stream_open(struct local_stream *ret, struct error *err);
void local_stream_close(struct local_stream *stream);

/* Returns the engine that runs the session's requests now, with which any thread may plan, or NULL with err.
 * In a forked child, a stream of the CPU's engine is first opened anew. */
struct engine *local_stream_engine(struct local_stream *stream, struct error *err);

/* Returns the CPU's engine in the same way, even while the session uses one of the program's streams. */
struct engine *local_stream_here(struct local_stream *stream, struct error *err);

struct local_job {
	struct engine_job job; /* Must be first. local_stream_run sets on_done. */
	bool is_counted;       /* Success counts as a run of the move's plan. */
	bool is_done;
};

/* Waits until all work on the program's stream has ended, and sets *ret to what its engine has counted since
 * the last call. Returns 0 or an error of the driver. */
int local_stream_count(struct local_stream *stream, struct engine_counts *ret, struct error *err);

/* If has_wait is true, has the program's stream wait for the word. Returns 0, or what engine_word_wait
 * returns. */
int local_stream_wait(struct local_stream *stream, struct error *err);

/* Runs a job to its end, or launches it into the program's stream. The caller must have called
 * local_stream_engine before. Returns the job's status, with err unless it is 0. */
int local_stream_run(struct local_stream *stream, struct local_job *job, struct error *err);

/* Runs a job to its end on the CPU's engine. The caller must have called local_stream_here before. */
int local_stream_run_here(struct local_stream *stream, struct local_job *job, struct error *err);

/* Sets *plans and *maps to the counts of the CPU engine's caches of plans and of tensor maps, since it was
 * opened. */
void local_engine_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns how often the plan has run, on any thread. */
struct engine_plan_runs local_plan_runs(const struct engine_plan *plan);

#endif
