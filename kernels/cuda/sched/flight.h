/* SPDX-License-Identifier: Apache-2.0 */
/* A flight is one job that is running on the device, in rounds. Before a job becomes a flight, it may wait
 * for a point of a timeline.
 *
 * A flight is started under the queue's lock. From then on the engine's thread owns it: it launches the
 * rounds and polls their events until the job has ended. Flights and their events are made once and reused.
 * Only flight_stop may be called from other threads.
 */
#ifndef KERNELS_CUDA_SCHED_FLIGHT_H
#define KERNELS_CUDA_SCHED_FLIGHT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/stage/jobs.h"
#include "kernels/cuda/stage/pack_job.h"
#include "kernels/cuda/stage/staging.h"
#include "kernels/cuda/stage/uploads.h"
#include "kernels/engine.h"

struct queue;

/* ---- Quick jobs ---------------------------------------------------------------------------------------- */

/* A quick job is short, and nothing else is under way in the engine when it starts. What matters for it is
 * how soon its end is seen, and an event that records a time is seen 2 to 3 us later than one that does not
 * (tests/bench/EXPERIMENTS.md). So the device times only one of QUICK_TIMED such jobs. That job tells how
 * much longer such jobs take by the host's clock than on the device, and this difference is subtracted from
 * the host's time of the others.
 *
 * An engine has one struct quick, zeroed at first, which belongs to the engine's thread.
 */
#define QUICK_TIMED 16
/* Maximum number of bytes that a quick job reads and writes; they take the device some microseconds. */
#define QUICK_BYTES    (2 << 20)
#define QUICK_LEAST_NS 1000 /* least time that is reported for a job that the device has not timed */
/* Longest time that is reported for such a job; anything beyond was spent waiting for others. */
#define QUICK_MOST_NS 20000

struct quick {
	uint32_t n; /* number of jobs so far */
	/* Extra time by the host's clock, averaged over the last few jobs that the device timed. */
	uint64_t extra_ns;
};

/* Returns whether the device times the next job. Must be called once for each quick job; the first one is
 * timed. */
static inline bool quick_is_timed(struct quick *quick)
{
	return quick->n++ % QUICK_TIMED == 0;
}

/* Learns from a job that the device has timed: clock_ns is its time by the host's clock, device_ns that by
 * the device. */
static inline void quick_learn(struct quick *quick, uint64_t clock_ns, uint64_t device_ns)
{
	const uint64_t extra = clock_ns > device_ns ? clock_ns - device_ns : 0;

	quick->extra_ns = quick->n <= QUICK_TIMED ? extra : (3 * quick->extra_ns + extra) / 4;
}

/* Returns an estimate of the device's time for a job that took clock_ns by the host's clock. */
static inline uint64_t quick_ns(const struct quick *quick, uint64_t clock_ns)
{
	const uint64_t ns = clock_ns > quick->extra_ns ? clock_ns - quick->extra_ns : 0;

	if (ns < QUICK_LEAST_NS)
		return QUICK_LEAST_NS;
	return ns < QUICK_MOST_NS ? ns : QUICK_MOST_NS;
}

/* ---- Flights ------------------------------------------------------------------------------------------- */

/* The step that a job is at. */
enum flight_stage {
	FLIGHT_NEW,    /* Nothing has been tried yet. */
	FLIGHT_PACKED, /* The job is a list of blocks that passes through pinned buffers (pack_job.h). */
	/* The packed list is no longer under way. If all of it was moved, the job's signal, if it has one,
	 * has been launched. */
	FLIGHT_SIGNALLED,
	FLIGHT_ROUNDS, /* Its rounds are launched, and their ends are polled. */
	FLIGHT_WAKING, /* Everything is done except for waking the threads that sleep on the signal. */
};

/* Maximum number of rounds, or of launches of a packed job, that may be under way; each has an end event. */
#define FLIGHT_MOST_ENDS PACKING_MOST_SLOTS

struct flight {
	struct engine_job *job;
	struct staging staging;
	enum flight_stage stage;
	struct fate fate;
	struct pack_job pack;
	/* Holds what kernels need beside the tensors (uploads.h), for lists, batches, exact casts and
	 * amax. */
	struct upload_buffer upload_buffer;
	struct tensor_extent brought; /* the bytes brought so far of a source that is brought as a whole */
	bool is_signal_alone;         /* The job moves nothing; its only round is the signal. */
	bool has_changed;             /* An exact cast has failed, so no signal follows. */
	uint64_t launched;            /* number of rounds launched */
	uint64_t landed;              /* number of rounds seen to have ended */
	uint32_t wakes_left;          /* threads sleeping on the signal that may still have to be woken */
	uint64_t waking_ns;           /* time that the engine's thread has spent on waking them so far */

	/* The fields from here on measure the job's time. */
	CUevent start;
	CUevent end[FLIGHT_MOST_ENDS]; /* Round i records end[i % slots], if the device times the job. */
	CUevent done;                  /* for a quick job, recorded before end[i]; keeps no time */
	bool is_timed;                 /* The device times the job. */
	uint64_t started_ns;           /* start by the monotonic clock */
	uint64_t done_ns;              /* monotonic time at which `done` was seen to be reached; 0: not yet */
	bool has_followed;             /* Its time began with the end of the flight before it. */
	struct flight *predecessor;    /* the flight whose end event is this one's start event, or NULL */
	struct flight *successor;      /* the flight whose start event is this one's end event, or NULL */

	/* The scheduler sets the fields from here on. */
	struct engine_stream *stream;
	struct engine_owner *owner;
	struct stream_slot *slot; /* on which its kernels run */
	enum job_weight weight;
	struct scratch_range scratch;
	struct quick *quick; /* not NULL for a quick job, which has a single round */
	/* Event on another stream of the device that the first round waits for; NULL: none. */
	CUevent after;
	uint64_t contention; /* value that contention_start returned at its start */
	/* In the list of flights under way, in the order of their start, or in the free list. */
	TAILQ_ENTRY(flight) entry;
	TAILQ_ENTRY(flight) stream_entry; /* in the engine stream's list of flights, in order */
};

TAILQ_HEAD(flight_list, flight);

/* Creates the flight's events. The flight must be zeroed, and flight_deinit must follow even on failure.
 * Returns 0 or the driver's error. */
int flight_init(struct flight *flight, struct equipment *equipment, const struct cuda_limits *limits,
                struct error *err);

/* Frees what the flight owns. On a lost device no driver call is made. */
void flight_deinit(struct flight *flight, enum cuda_health health);

/* Starts a job; the flight's stream, owner, slot and weight must be set. quick is NULL unless the job is a
 * quick one, which has one round and no signal. */
void flight_start(struct flight *flight, struct engine_job *job, const struct staging *staging,
                  struct quick *quick);

/* flight_is_launched returns whether some round is on the device and has not been seen to end. flight_end
 * then returns the event behind the last such round. */
bool flight_is_launched(const struct flight *flight);
CUevent flight_end(const struct flight *flight);

/* Launches the rounds that can be launched now. A failure becomes the job's status, and no more rounds are
 * launched. */
void flight_launch(struct equipment *equipment, struct flight *flight);

enum flight_progress { FLIGHT_STANDS, FLIGHT_MOVED, FLIGHT_ENDED };

/* Polls the rounds and, after the last one, wakes the threads that sleep on the signal, a few per call. When
 * it returns FLIGHT_ENDED, nothing of the job is on the device any more, and its status and time are set. If
 * the device cannot be queried, the flight's fate has the status DEVICE_LOST, and what is on the device is
 * unknown. */
enum flight_progress flight_poll(struct flight *flight);

/* Ends a flight of a lost device, after waiting until no thread uses the job's memory any more. */
void flight_abandon(struct flight *flight);

/* Prevents further rounds from being launched. May be called from any thread. */
void flight_stop(struct flight *flight);

/* ---- Timelines ----------------------------------------------------------------------------------------- */

/* Jobs may wait for points of timelines: words in memory, which the engine's thread polls.
 *
 * A wait is never put on a stream (cuStreamWaitValue64), because it cannot be taken back, and while it is
 * pending it blocks everyone: cuMemFree and cuMemHostUnregister block until the point has come, and so does
 * every other call that puts work on the device. A few pending waits also fill the device's work queues, and
 * then unrelated streams stand still (seen on an H200 with driver 13.0: 8 pending waits hold nobody back, 16
 * hold back every other stream). So the engine's thread reads the words again and again, less and less often:
 * words in host memory directly, words on the device by small copies, many at once.
 *
 * A signal is an operation on the job's own stream (cuStreamWriteValue64), so a client's stream that waits
 * for it goes on without the host.
 */
#define TIMELINE_WORDS 64 /* maximum number of words read in one poll */

struct poll {
	struct engine_stream *stream; /* engine stream whose first job waits for the point */
	bool is_read_by_device; /* The word is on the device, and a copy of it to the host is enqueued. */
	int result; /* 1: the point has come; 0: it has not; negative: status with which the job is to end */
};

/* The engine's thread, or the owner's thread while it drives the engine, owns all of this. */
struct timelines {
	bool is_guarded;  /* fault_init has succeeded. */
	uint64_t most_ns; /* longest time between two polls of a word */

	/* These are created at the first poll of a word on the device. */
	CUstream stream;
	CUevent read;
	uint64_t *words; /* pinned page of TIMELINE_WORDS words */

	struct poll polls[TIMELINE_WORDS];
	uint32_t n;          /* words of the poll under way; 0: no poll is under way */
	bool is_on_device;   /* The poll under way waits for copies of words on the device. */
	uint64_t started_ns; /* monotonic time at which the last poll began */
	/* No new poll begins before this time, so that polls take only a share of the thread's time. */
	uint64_t earliest_ns;
	/* Monotonic time of the next poll; UINT64_MAX: none is due until something changes. */
	uint64_t due_ns;
};

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err);

/* Zeroed timelines are allowed. On a lost device no driver call is made. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health);

/* Polls the points that are due, or checks whether the poll under way has ended. Caller holds queue->lock,
 * which is released in between. Returns whether the owner has to be woken. */
bool timelines_poll(struct timelines *timelines, struct queue *queue);

/* Returns how long to wait between two polls of a word for which a job has waited for waited_ns, most_ns at
 * most. The end of a wait is thus noticed late by less than a hundredth of the wait or, if the wait is short,
 * by some microseconds. */
uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns);

/* Returns the monotonic time at which the next call of timelines_poll has something to do, as far as is
 * known; 0: at once. */
uint64_t timelines_due_ns(const struct timelines *timelines);

/* Ends the poll under way, if any, because the device is lost. Caller holds queue->lock. Returns whether the
 * owner has to be woken. */
bool timelines_lose(struct timelines *timelines);

#endif
