/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of this process. It is opened by the first session and stays until the process ends. A child of
 * fork opens one of its own, since the threads of its parent's are not there.
 *
 * An engine has one owner. Whoever holds the lock is that owner: it submits and reaps. Small moves run in
 * that call on the caller's thread; whoever waits for a large one lets go of the lock.
 */
#ifndef CLIENT_LOCAL_ENGINE_H
#define CLIENT_LOCAL_ENGINE_H

#include "kernels/engine.h"

/* One thread at a time submits to a stream. */
struct local_stream {
	struct engine_stream *stream;
	uint64_t life; /* which of the engines that the process has had it belongs to */
};

/* Opens the engine if need be, and a stream of it. */
int local_stream_open(struct local_stream *ret, struct error *err);
void local_stream_close(struct local_stream *stream);

/* Returns the stream's engine, with which any thread may plan, or NULL with err. In a forked child, the
 * stream is opened anew first. */
struct engine *local_stream_engine(struct local_stream *stream, struct error *err);

struct local_job {
	struct engine_job job; /* first; on_done is set by local_stream_run */
	bool is_counted;       /* whether success counts as a run of its move's plan */
	bool is_done;
};

/* Runs a job to its end and sets its status. The caller has called local_stream_engine before. */
void local_stream_run(struct local_stream *stream, struct local_job *job);

/* How often the plan has run, by whichever thread. */
struct engine_plan_runs local_plan_runs(const struct engine_plan *plan);

#endif
