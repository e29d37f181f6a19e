/* A flight: one job on its way over the device.
 *
 * A flight is started under the engine's lock and then belongs to the engine's thread, which launches its
 * rounds and looks at their events until it has ended. Flights and their events are made once and used again.
 * Only flight_stop may be called by others.
 */
#ifndef KERNELS_CUDA_FLIGHT_H
#define KERNELS_CUDA_FLIGHT_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "upload_buffer.h"
#include "kernels/engine.h"
#include "kernels/cuda/launch/launch.h"
#include "memory.h"
#include "scratch.h"
#include "staging.h"

/* What all flights share. */
struct flights {
	struct launcher launcher;
	struct plan_facts facts;
	CUstream copy_in; /* of jobs that run in rounds; the kernels are on the job's own stream */
	CUstream copy_out;
	CUevent passed; /* from one stream to the next; recorded and waited for in one go */
};

struct flight {
	struct engine_job *job;
	struct engine_stream *stream;
	CUstream own;
	struct staging staging;
	struct scratch_block scratch;
	struct desk desk; /* of jobs of more than one move */
	CUevent start;
	CUevent end[STAGING_MOST_SLOTS]; /* round i records end[i % slots] */
	bool is_signal_alone;            /* a round that moves nothing */
	uint64_t launched;               /* rounds */
	uint64_t landed;
	struct tensor_extent brought; /* of a source that is brought as a whole */
	bool is_waking;               /* all is done but waking who sleeps on the signal */
	uint32_t wakes_left;          /* sleepers that may still be woken */
	uint64_t waking_ns;           /* that it has taken so far, of the engine's thread */
	int status;                   /* the first failure */
	struct error why;             /* with status */
	atomic_bool stopped;
	uint64_t started_ns;              /* by the monotonic clock */
	TAILQ_ENTRY(flight) entry;        /* by the engine: in order of their start, or free */
	TAILQ_ENTRY(flight) stream_entry; /* of the stream, in order */
};

int flights_init(struct flights *flights, const struct device *device, const struct plan_facts *facts,
                 uint64_t map_entries, struct error *err);

/* A zeroed one is allowed. On a device that is lost the driver is not asked. */
void flights_deinit(struct flights *flights, enum cuda_health health);

/* The events. */
int flight_init(struct flight *flight, struct error *err);
void flight_deinit(struct flight *flight);

/* Takes a job up. When it needs scratch memory, flight->scratch has been taken. own: where its kernels run.
 */
void flight_start(struct flight *flight, struct engine_job *job, const struct staging *staging, CUstream own);

/* Launches the rounds that can be. What fails is the flight's status: no more rounds follow. */
void flight_launch(struct flights *flights, struct flight *flight);

enum flight_state { FLIGHT_UNDER_WAY, FLIGHT_MOVED, FLIGHT_ENDED };

/* Looks whether rounds have landed, and then wakes who sleeps on the signal, some at a time. Once ended,
 * nothing of it is on the device any more, and the job has its status and time; DEVICE_LOST when the device
 * cannot be asked, and then what is on it is unknown. */
enum flight_state flight_look(struct flight *flight);

/* No more rounds are launched. From any thread. */
void flight_stop(struct flight *flight);

#endif
