/* SPDX-License-Identifier: Apache-2.0 */
/* A flight is one job that is running on the device, in rounds. Timelines are what jobs wait for before they
 * become flights.
 *
 * A flight is started under the engine's lock and then belongs to the engine's thread, which launches its
 * rounds and polls their events until it has ended. Flights and their events are made once and reused. Only
 * flight_stop may be called from other threads.
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

/* A quick job is short, and has the engine to itself when it starts. It matters how soon its end is seen, and
 * an event that keeps the time is seen 2 to 3 us later than one that does not (tests/bench/EXPERIMENTS.md).
 * So the device times only one in QUICK_TIMED, which tells how much longer such jobs take by the clock than
 * on the device. That is subtracted from the time of the others.
 *
 * An engine has one struct, zeroed at first, for its thread.
 */
#define QUICK_TIMED    16
#define QUICK_BYTES    (2 << 20) /* read and written, at most: the device takes some microseconds */
#define QUICK_LEAST_NS 1000      /* A job that is not timed is said to have taken as long at least. */
#define QUICK_MOST_NS  20000     /* Any time beyond that was spent waiting for others. */

struct quick {
	uint32_t n;        /* jobs so far */
	uint64_t extra_ns; /* so much longer by the clock, averaged over the last few that were timed */
};

/* Returns whether the next job is timed; it is called once for each, and the first one is. */
static inline bool quick_is_timed(struct quick *quick)
{
	return quick->n++ % QUICK_TIMED == 0;
}

/* Tells what a job that was timed took. */
static inline void quick_learn(struct quick *quick, uint64_t clock_ns, uint64_t device_ns)
{
	const uint64_t extra = clock_ns > device_ns ? clock_ns - device_ns : 0;

	quick->extra_ns = quick->n <= QUICK_TIMED ? extra : (3 * quick->extra_ns + extra) / 4;
}

/* Returns the device's time of a job that was not timed. */
static inline uint64_t quick_ns(const struct quick *quick, uint64_t clock_ns)
{
	const uint64_t ns = clock_ns > quick->extra_ns ? clock_ns - quick->extra_ns : 0;

	if (ns < QUICK_LEAST_NS)
		return QUICK_LEAST_NS;
	return ns < QUICK_MOST_NS ? ns : QUICK_MOST_NS;
}

/* ---- Flights ------------------------------------------------------------------------------------------- */

/* The stage says which step the job is at. */
enum flight_stage {
	FLIGHT_NEW,       /* Nothing of it was tried. */
	FLIGHT_PACKED,    /* A list of blocks is on its way through pinned buffers. */
	FLIGHT_SIGNALLED, /* The list has been moved, and only its signal is launched. */
	FLIGHT_ROUNDS,    /* Its rounds are launched and land. */
	FLIGHT_WAKING,    /* All is done but waking those who sleep on the signal. */
};

/* So many rounds, or launches of a packed job, may be under way. */
#define FLIGHT_MOST_ENDS PACKING_MOST_SLOTS

struct flight {
	struct engine_job *job;
	struct staging staging;
	enum flight_stage stage;
	struct fate fate;
	struct pack_job pack;
	/* Used by jobs of more than one move, with exact casts or amax. */
	struct upload_buffer upload_buffer;
	struct tensor_extent brought; /* what has been brought of a source that is brought as a whole */
	bool is_signal_alone;         /* There is one round, which moves nothing. */
	bool has_changed;             /* An exact cast failed, so nothing follows. */
	uint64_t launched;            /* rounds */
	uint64_t landed;
	uint32_t wakes_left; /* sleepers that may still be woken */
	uint64_t waking_ns;  /* time of the engine's thread that waking has taken so far */

	/* These measure its time. */
	CUevent start;
	CUevent end[FLIGHT_MOST_ENDS]; /* Round i records end[i % slots] if the job is timed. */
	CUevent done;                  /* A quick job records it first; it keeps no time. */
	bool is_timed;                 /* The device times it. */
	uint64_t started_ns;           /* by the monotonic clock */
	uint64_t done_ns;              /* when `done` was seen; 0: not yet */
	bool has_followed;             /* It began with the end of another one. */
	struct flight *predecessor;    /* the flight whose end is this one's start, or NULL */
	struct flight *successor;      /* the flight whose start is this one's end, or NULL */

	/* The scheduler sets these. */
	struct engine_stream *stream;
	struct engine_owner *owner;
	struct stream_slot *slot; /* Its kernels run there. */
	enum job_weight weight;
	struct scratch_range scratch;
	struct quick *quick; /* of a quick job, which has one round; else NULL */
	CUevent after; /* Its first round waits for it, on another stream of the device; NULL: for nothing. */
	uint64_t contention;              /* from contention_start, at its start */
	TAILQ_ENTRY(flight) entry;        /* in the list of flights by start, or in the free list */
	TAILQ_ENTRY(flight) stream_entry; /* in the stream's list, in order */
};

TAILQ_HEAD(flight_list, flight);

/* Makes its events. */
int flight_init(struct flight *flight, struct equipment *equipment, const struct cuda_limits *limits,
                struct error *err);

/* Frees what it has. The driver is not asked on a device that is lost. */
void flight_deinit(struct flight *flight, enum cuda_health health);

/* Takes a job up; the flight's stream, owner, slot and weight must be set. quick is NULL unless it is a quick
 * job, which is one round without a signal. */
void flight_start(struct flight *flight, struct engine_job *job, const struct staging *staging,
                  struct quick *quick);

/* flight_is_launched returns whether anything of it is on the device, as far as has been seen, and flight_end
 * the event behind that. */
bool flight_is_launched(const struct flight *flight);
CUevent flight_end(const struct flight *flight);

/* Launches the rounds that can be launched. A failure becomes the job's status, and no more rounds follow. */
void flight_launch(struct equipment *equipment, struct flight *flight);

enum flight_progress { FLIGHT_STANDS, FLIGHT_MOVED, FLIGHT_ENDED };

/* Polls rounds, and after the last one wakes those who sleep on the signal, some at a time. Once it has
 * ended, nothing of it is on the device any more, and the job has its status and time. The status is
 * DEVICE_LOST if the device cannot be asked; what is on it is then unknown. */
enum flight_progress flight_poll(struct flight *flight);

/* Waits until no thread uses what is the job's any more, when the device is lost. */
void flight_abandon(struct flight *flight);

/* Keeps further rounds from being launched. May be called from any thread. */
void flight_stop(struct flight *flight);

/* ---- Timelines ----------------------------------------------------------------------------------------- */

/* Jobs wait for words of timelines, which the engine's thread polls.
 *
 * A wait is never put on a stream (cuStreamWaitValue64): it cannot be taken back, and while one is parked, so
 * is everybody: cuMemFree and cuMemHostUnregister block until it has come, and with them every other call
 * that puts work on the device; a few of them fill the device's work queues, and streams that have nothing to
 * do with them stand still (seen on an H200, driver 13.0: 8 parked hold nobody back, 16 hold back every other
 * stream). So the engine's thread reads the words, again and again, less and less often: those in host memory
 * as they are, those on the device by small copies, many at once. A signal is an operation of the job's own
 * stream (cuStreamWriteValue64): a stream of a client's that waits for it goes on without any host.
 */
#define TIMELINE_WORDS 64 /* words at most in one poll */

struct poll {
	struct engine_stream *stream; /* whose first job waits for the point */
	bool is_read_by_device;
	int result; /* 1: the point has come; 0: it has not; negative: the job's status */
};

/* All of it belongs to the engine's thread. */
struct timelines {
	bool is_guarded;
	uint64_t most_ns; /* the longest time between two polls */

	/* These are made with the first poll of a word on the device. */
	CUstream stream;
	CUevent read;
	uint64_t *words; /* pinned */

	struct poll polls[TIMELINE_WORDS];
	uint32_t n;          /* words of the poll under way; 0: there is none */
	bool is_on_device;   /* The poll under way reads words on the device. */
	uint64_t started_ns; /* when the last poll began, by the monotonic clock */
	uint64_t earliest_ns;
	uint64_t due_ns; /* when the next poll is due; UINT64_MAX: when something changes */
};

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err);

/* Zeroed timelines are allowed. The driver is not asked on a device that is lost. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health);

/* Polls the points that are due, or checks whether the poll under way is over. The queue's lock must be held,
 * and is released meanwhile. Returns whether the owner has to be woken. */
bool timelines_poll(struct timelines *timelines, struct queue *queue);

/* Returns the time from one poll of a word to the next, after it has been waited for so long: a wait is late
 * by less than a hundredth of its length, or some microseconds. */
uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns);

/* Returns when the next pass has something to do, as far as is known now; 0 means at once. */
uint64_t timelines_due_ns(const struct timelines *timelines);

/* Ends the poll under way, if any, because the device is lost. The lock must be held. */
bool timelines_lose(struct timelines *timelines);

#endif
