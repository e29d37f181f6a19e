/* SPDX-License-Identifier: Apache-2.0 */
/* This process has several engines. That of the CPU is opened by the first session and stays until the
 * process ends. A child of fork opens one of its own, since the threads of its parent's are not there. Those
 * of CUDA contexts are for streams of the program's own (kernels/engine.h).
 *
 * The CPU's engine has one owner. Whoever holds the lock is that owner: it submits and reaps. Small moves run
 * in that call on the caller's thread; whoever waits for a large one lets go of the lock.
 */
#ifndef CLIENT_LOCAL_ENGINE_H
#define CLIENT_LOCAL_ENGINE_H

#include "kernels/engine.h"

/* These are a device's counts as they are, and as they were when they were last read. */
struct local_counters {
	uint64_t address; /* of a struct engine_counts on the device */
	struct engine_counts seen;
};

/* Jobs run to their end on the CPU engine's stream, or are launched into the program's stream. One thread at
 * a time may use a local_stream. */
struct local_stream {
	struct engine_stream *stream;
	uint64_t life; /* which of the engines that the process has had it belongs to */

	struct engine *device;           /* the engine of the program's stream, or NULL */
	void *cuda_stream;               /* the program's stream */
	struct local_counters *counters; /* the counts to which that engine adds */
	bool is_awaited;                 /* Jobs end before local_stream_run returns. */
	bool has_wait;                   /* The program's stream waits for the word before the next job. */
	uint64_t wait_address;           /* address of the word on that device */
	uint64_t wait_value;
};

/* Opens the engine if need be, and a stream of it in *ret, of which the rest is left alone. */
int local_stream_open(struct local_stream *ret, struct error *err);
void local_stream_close(struct local_stream *stream);

/* Returns the stream's engine, with which any thread may plan, or NULL with err. In a forked child, the
 * stream is opened anew first. */
struct engine *local_stream_engine(struct local_stream *stream, struct error *err);

/* Does the same for the CPU's engine, whether or not the program has a stream. */
struct engine *local_stream_here(struct local_stream *stream, struct error *err);

struct local_job {
	struct engine_job job; /* first; on_done is set by local_stream_run */
	bool is_counted;       /* success counts as a run of its move's plan */
	bool is_done;
};

/* Sets *ret to what the engine of the program's stream has counted since the last time, once all that is on
 * the stream has ended. Returns 0, or an error of the driver's. */
int local_stream_count(struct local_stream *stream, struct engine_counts *ret, struct error *err);

/* Has the program's stream wait, if it has to before the next job. Returns 0, or as engine_word_wait does. */
int local_stream_wait(struct local_stream *stream, struct error *err);

/* Runs a job to its end, or launches it into the program's stream. The caller has called local_stream_engine
 * before. Returns the job's status, with err unless it is 0. */
int local_stream_run(struct local_stream *stream, struct local_job *job, struct error *err);

/* Runs a job to its end by the CPU's engine. The caller has called local_stream_here before. */
int local_stream_run_here(struct local_stream *stream, struct local_job *job, struct error *err);

/* Sets what the caches of the CPU's engine have counted, in this process since the engine was opened. */
void local_engine_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns how often the plan has run, by whichever thread. */
struct engine_plan_runs local_plan_runs(const struct engine_plan *plan);

#endif
