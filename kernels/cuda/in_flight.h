/* SPDX-License-Identifier: Apache-2.0 */
/* An in-flight job: one job that is running on the device.
 *
 * It is started under the engine's lock and then belongs to the engine's thread, which launches its rounds
 * and polls their events until it has ended. In-flight jobs and their events are made once and reused. Only
 * in_flight_stop may be called from other threads.
 */
#ifndef KERNELS_CUDA_IN_FLIGHT_H
#define KERNELS_CUDA_IN_FLIGHT_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "upload_buffer.h"
#include "kernels/engine.h"
#include "limits.h"
#include "kernels/cuda/launch/launch.h"
#include "memory.h"
#include "pack_job.h"
#include "quick.h"
#include "scratch.h"
#include "staging.h"
#include "stream_slots.h"

/* What all in-flight jobs share. */
struct in_flight_pool {
	struct launcher launcher;
	struct plan_facts facts;
	CUstream copy_in; /* of jobs that run in rounds; the kernels are on the job's own stream */
	CUstream copy_out;
	struct pack_slots pack_slots;
	struct packers packers;
	CUevent passed; /* from one stream to the next; recorded and waited for in one go */
};

struct in_flight_job {
	struct engine_job *job;
	struct engine_stream *stream;
	enum job_weight weight;   /* by the engine */
	struct stream_slot *slot; /* likewise: where its kernels run */
	CUevent after; /* by the engine: what its first round waits for, on another stream of the device;
	                  NULL: nothing */
	struct staging staging;
	struct scratch_range scratch;
	struct pack_job pack;
	struct upload_buffer upload_buffer; /* of jobs of more than one move, with exact casts or amax */
	uint64_t magnitudes;                /* on the device, in it (magnitudes.h); 0: none */
	uint64_t *changed;                  /* in it, one for each move (changed.h); NULL: none */
	bool has_changed;                   /* it moved, and an exact cast failed: nothing follows */
	CUevent start;
	CUevent end[STAGING_MOST_SLOTS];   /* round i records end[i % slots], if the job is timed */
	CUevent done;                      /* without a time: of a quick job, before that */
	struct quick *quick;               /* by the engine: a quick job, of one round; or NULL */
	bool is_timed;                     /* by the device */
	uint64_t done_ns;                  /* when `done` was seen, by the monotonic clock; 0: not yet */
	bool has_followed;                 /* it began with the end of another one */
	struct in_flight_job *predecessor; /* whose end is this one's start, or NULL */
	struct in_flight_job *successor;   /* the other way round */
	bool is_signal_alone;              /* a round that moves nothing */
	bool is_new;                       /* nothing of it was tried */
	uint64_t launched;                 /* rounds */
	uint64_t landed;
	struct tensor_extent brought; /* of a source that is brought as a whole */
	bool is_waking;               /* all is done but waking those who sleep on the signal */
	uint32_t wakes_left;          /* sleepers that may still be woken */
	uint64_t waking_ns;           /* that it has taken so far, of the engine's thread */
	int status;                   /* the first failure */
	struct error why;             /* with status */
	atomic_bool stopped;
	uint64_t started_ns;                     /* by the monotonic clock */
	uint64_t contention;                     /* by the engine: since its start */
	TAILQ_ENTRY(in_flight_job) entry;        /* by the engine: in order of their start, or free */
	TAILQ_ENTRY(in_flight_job) stream_entry; /* of the stream, in order */
};

int in_flight_pool_init(struct in_flight_pool *pool, const struct device *device,
                        const struct plan_facts *facts, const struct cuda_limits *limits,
                        uint64_t map_entries, struct error *err);

/* A zeroed one is allowed. On a device that is lost the driver is not asked. */
void in_flight_pool_deinit(struct in_flight_pool *pool, enum cuda_health health);

/* The events. */
int in_flight_init(struct in_flight_job *in_flight, struct error *err);
void in_flight_deinit(struct in_flight_job *in_flight);

/* Takes a job up. When it needs scratch memory, in_flight->scratch has been taken. slot: where its kernels
 * run. quick: of a quick job, which is one round without a signal; or NULL.
 */
void in_flight_start(struct in_flight_job *in_flight, struct engine_job *job, const struct staging *staging,
                     struct stream_slot *slot, struct quick *quick);

/* Whether anything of it is on the device, as far as has been seen; and the event after that. */
bool in_flight_is_launched(const struct in_flight_job *in_flight);
CUevent in_flight_end(const struct in_flight_job *in_flight);

/* Launches the rounds that can be launched. A failure becomes the job's status, and no more rounds follow. */
void in_flight_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight);

enum in_flight_state { IN_FLIGHT_UNDER_WAY, IN_FLIGHT_MOVED, IN_FLIGHT_ENDED };

/* Polls rounds, and after the last wakes those who sleep on the signal, some at a time. Once ended,
 * nothing of it is on the device any more, and the job has its status and time; DEVICE_LOST when the device
 * cannot be asked, and then what is on it is unknown. */
enum in_flight_state in_flight_poll(struct in_flight_job *in_flight);

/* Of a job that is ended because the device is lost: no thread uses what is the job's any more. */
void in_flight_abandon(struct in_flight_job *in_flight);

/* No more rounds are launched. From any thread. */
void in_flight_stop(struct in_flight_job *in_flight);

#endif
