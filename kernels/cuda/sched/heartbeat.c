/* SPDX-License-Identifier: Apache-2.0 */
/* One probe at a time. A probe may find the last one's event still pending, and then waits for that one. */
#include "heartbeat.h"

#include "kernels/cuda/driver/driver.h"
#include "proto/clock.h"

void heartbeat_deinit(struct heartbeat *heartbeat, enum cuda_health health)
{
	if (health == CUDA_LOST)
		return;
	if (heartbeat->event)
		driver.cuEventDestroy(heartbeat->event);
	if (heartbeat->stream)
		driver.cuStreamDestroy(heartbeat->stream);
}

/* ---- The owner ---------------------------------------------------------------------------------------- */

int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err)
{
	pthread_mutex_lock(&queue->lock);
	bool is_answered = !heartbeat_is_asked(heartbeat), is_taken = heartbeat->taken == heartbeat->asked;

	if (is_answered) {
		heartbeat->asked++;
		queue_stir(queue);
	}
	pthread_mutex_unlock(&queue->lock);
	if (is_answered)
		return 0;
	return error_set(err, STATUS_TIMEOUT, "%s: no sign of life",
	                 is_taken ? "the device" : "the thread that drives the device");
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

/* What is there stays when something is missing, and the next probe tries the rest again. */
static int open_stream(struct heartbeat *heartbeat, struct error *err)
{
	int r = heartbeat->stream ? 0 : driver_stream(&heartbeat->stream, STREAM_HIGHEST, err);

	if (r == 0 && !heartbeat->event)
		r = driver_call(err, cuEventCreate, (&heartbeat->event, CU_EVENT_DISABLE_TIMING));
	return r;
}

static int ask(struct heartbeat *heartbeat, struct error *err)
{
	int r = open_stream(heartbeat, err);

	if (r == 0)
		r = driver_call(err, cuEventRecord, (heartbeat->event, heartbeat->stream));
	heartbeat->is_under_way = r == 0;
	return r;
}

/* 0: not yet; 1: the device has come to the event; or DEVICE_LOST. */
static int query(struct heartbeat *heartbeat, struct error *err)
{
	CUresult result = driver.cuEventQuery(heartbeat->event);

	if (result == CUDA_ERROR_NOT_READY)
		return 0;
	heartbeat->is_under_way = false;
	if (result == CUDA_SUCCESS)
		return 1;
	driver_fail(err, result, "cuEventQuery(event)");
	return STATUS_DEVICE_LOST;
}

/* A device that has no memory for an event has answered. */
static bool is_alive(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns)
{
	struct error err;
	int r = heartbeat->is_under_way ? 0 : ask(heartbeat, &err);

	if (r == 0)
		r = query(heartbeat, &err);
	if (r == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	return r != 0 || landed_ns > heartbeat->taken_ns;
}

void heartbeat_poll(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns)
{
	if (heartbeat->taken != heartbeat->asked)
		heartbeat->taken_ns = clock_ns();
	heartbeat->taken = heartbeat->asked;
	if (queue->lost) {
		heartbeat->answered = heartbeat->taken;
		return;
	}
	pthread_mutex_unlock(&queue->lock);
	bool alive = is_alive(heartbeat, queue, landed_ns);
	pthread_mutex_lock(&queue->lock);
	if (alive)
		heartbeat->answered = heartbeat->taken;
}
