/* One question at a time; the next one may find the event of the last still on its way, and waits for that.
 */
#include "heartbeat.h"

#include "driver.h"
#include "proto/clock.h"

void pulse_deinit(struct pulse *pulse, enum cuda_health health)
{
	if (health == CUDA_LOST)
		return;
	if (pulse->event)
		driver.cuEventDestroy(pulse->event);
	if (pulse->stream)
		driver.cuStreamDestroy(pulse->stream);
}

/* ---- The owner ---------------------------------------------------------------------------------------- */

int pulse_probe(struct pulse *pulse, struct queue *queue, struct error *err)
{
	pthread_mutex_lock(&queue->lock);
	bool is_answered = !pulse_is_asked(pulse), is_taken = pulse->taken == pulse->asked;

	if (is_answered) {
		pulse->asked++;
		queue_stir(queue);
	}
	pthread_mutex_unlock(&queue->lock);
	if (is_answered)
		return 0;
	return error_set(err, STATUS_TIMEOUT, "%s: no sign of life",
	                 is_taken ? "the device" : "the thread that drives the device");
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

/* What is there stays when something is missing, and the next question asks for the rest. */
static int open_stream(struct pulse *pulse, struct error *err)
{
	int least, greatest, r = 0;

	if (!pulse->stream) {
		r = driver_call(err, cuCtxGetStreamPriorityRange, (&least, &greatest));
		if (r == 0)
			r = driver_call(err, cuStreamCreateWithPriority,
			                (&pulse->stream, CU_STREAM_NON_BLOCKING, greatest));
	}
	if (r == 0 && !pulse->event)
		r = driver_call(err, cuEventCreate, (&pulse->event, CU_EVENT_DISABLE_TIMING));
	return r;
}

static int ask(struct pulse *pulse, struct error *err)
{
	int r = open_stream(pulse, err);

	if (r == 0)
		r = driver_call(err, cuEventRecord, (pulse->event, pulse->stream));
	pulse->is_under_way = r == 0;
	return r;
}

/* 0: not yet; 1: the device has come to the event; or DEVICE_LOST. */
static int look(struct pulse *pulse, struct error *err)
{
	CUresult result = driver.cuEventQuery(pulse->event);

	if (result == CUDA_ERROR_NOT_READY)
		return 0;
	pulse->is_under_way = false;
	if (result == CUDA_SUCCESS)
		return 1;
	driver_fail(err, result, "cuEventQuery(event)");
	return STATUS_DEVICE_LOST;
}

/* A device that has no memory for an event has answered. */
static bool is_alive(struct pulse *pulse, struct queue *queue, uint64_t landed_ns)
{
	struct error err;
	int r = pulse->is_under_way ? 0 : ask(pulse, &err);

	if (r == 0)
		r = look(pulse, &err);
	if (r == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	return r != 0 || landed_ns > pulse->taken_ns;
}

void pulse_turn(struct pulse *pulse, struct queue *queue, uint64_t landed_ns)
{
	if (pulse->taken != pulse->asked)
		pulse->taken_ns = clock_ns();
	pulse->taken = pulse->asked;
	if (queue->lost) {
		pulse->answered = pulse->taken;
		return;
	}
	pthread_mutex_unlock(&queue->lock);
	bool alive = is_alive(pulse, queue, landed_ns);
	pthread_mutex_lock(&queue->lock);
	if (alive)
		pulse->answered = pulse->taken;
}
