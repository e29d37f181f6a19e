/* SPDX-License-Identifier: Apache-2.0 */
/* Measures order by words: requests wait for the first word of the memory and signal the second. */
#include "neighbour_order.h"

#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "figures.h"
#include "transpose.h"

#define WORDS_BYTES  4096
#define SECOND       8 /* offset of the second word */
#define HOST_WAIT_MS 20000

void hand_over_init(struct hand_over *hand_over, struct bench *bench, enum side side, double age_us)
{
	const size_t size = (size_t)(bench->scale->call_side * bench->scale->call_side) * 4;

	*hand_over = (struct hand_over){ .bench = bench, .side = side, .age_us = age_us };
	memory_init(&hand_over->words, bench->client, side, WORDS_BYTES);
	memory_init(&hand_over->dst, bench->client, SIDE_DEVICE, size);
	memory_init(&hand_over->src, bench->client, SIDE_DEVICE, size);
	load_init_square(&hand_over->load, bench->client, &hand_over->dst, &hand_over->src,
	                 bench->scale->call_side);
	rig_call(cuEventCreate, (&hand_over->begin, CU_EVENT_DEFAULT));
	rig_call(cuEventCreate, (&hand_over->end, CU_EVENT_DEFAULT));
	if (side == SIDE_DEVICE)
		rig_call(cuMemsetD8Async, (hand_over->words.device, 0, WORDS_BYTES, bench->rig.stream));
	rig_wait(&bench->rig);
}

void hand_over_deinit(struct hand_over *hand_over)
{
	rig_call(cuEventDestroy, (hand_over->begin));
	rig_call(cuEventDestroy, (hand_over->end));
	load_deinit(&hand_over->load);
	memory_deinit(&hand_over->src);
	memory_deinit(&hand_over->dst);
	memory_deinit(&hand_over->words);
}

static tma_ticket submit_waiting(struct hand_over *hand_over)
{
	const uint64_t round = ++hand_over->round;
	tma_region *words = hand_over->words.region;
	const struct tma_order order = { .wait = { .region = words, .value = round },
		                         .signal = { .region = words, .offset = SECOND, .value = round } };
	struct tma_transform transform = hand_over->load.transform;
	tma_client *client = hand_over->bench->client;
	tma_ticket ticket;

	transform.order = &order;
	must(client, tma_submit(client, &transform, &ticket));
	must(client, tma_flush(client));
	return ticket;
}

/* Times with the stream's own events. This includes the time in which the host enqueues both operations. */
static double by_stream(struct hand_over *hand_over)
{
	struct rig *rig = &hand_over->bench->rig;
	tma_client *client = hand_over->bench->client;
	const CUdeviceptr word = hand_over->words.device;
	float ms;

	rig_call(cuEventRecord, (hand_over->begin, rig->stream));
	must(client, tma_stream_signal(client, rig->stream, word, hand_over->round));
	must(client, tma_stream_wait(client, rig->stream, word + SECOND, hand_over->round));
	rig_call(cuEventRecord, (hand_over->end, rig->stream));
	rig_wait(rig);
	rig_call(cuEventElapsedTime, (&ms, hand_over->begin, hand_over->end));
	return ms * 1e3;
}

static double by_host(struct hand_over *hand_over)
{
	char *words = tma_region_data(hand_over->words.region);
	const double start = now_us();

	if (tma_point_signal(words, hand_over->round) < 0 ||
	    tma_point_wait(words + SECOND, hand_over->round, HOST_WAIT_MS) != TMA_OK)
		rig_die("the signal of a request did not come");
	return now_us() - start;
}

double hand_over_sample(void *arg)
{
	struct hand_over *hand_over = arg;
	const tma_ticket ticket = submit_waiting(hand_over);
	double us;

	nap_us(hand_over->age_us);
	us = hand_over->side == SIDE_HOST ? by_host(hand_over) : by_stream(hand_over);
	must(hand_over->bench->client, tma_wait(hand_over->bench->client, ticket, NULL));
	return us;
}

/* ---- A wait for which nothing comes
 * ---------------------------------------------------------------------- */

/* Returns the CPU time that the service's process has used; negative if it cannot be read. */
static double service_us(const tma_client *client)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	struct timespec t;
	clockid_t clock;

	if (getsockopt(tma_fd(client), SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
	    clock_getcpuclockid(peer.pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		return -1;
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Returns the share of one CPU that the idle service uses; negative if it cannot be read. */
static double service_load(const struct bench *bench)
{
	const double before = service_us(bench->client), start = now_us();

	nap_us(bench->scale->idle_s * 1e6);
	return before < 0 ? -1 : (service_us(bench->client) - before) / (now_us() - start);
}

static double load_beside_wait(struct bench *bench, enum side side)
{
	struct hand_over hand_over;
	tma_ticket ticket;
	double load;

	hand_over_init(&hand_over, bench, side, 0);
	hand_over_sample(&hand_over);
	ticket = submit_waiting(&hand_over);
	load = service_load(bench);
	if (side == SIDE_HOST)
		by_host(&hand_over);
	else
		by_stream(&hand_over);
	must(bench->client, tma_wait(bench->client, ticket, NULL));
	hand_over_deinit(&hand_over);
	return load;
}

void idle_wait_run(struct bench *bench)
{
	const double idle = service_load(bench);
	const double host = load_beside_wait(bench, SIDE_HOST), device = load_beside_wait(bench, SIDE_DEVICE);

	if (idle < 0)
		printf("CPU of the service: not measured, its clock cannot be read\n");
	else
		printf(
		    "CPU of the service in %.1f s: %.2f %% idle, %.2f %% while a request waits for a word on the "
		    "host, %.2f %% on the device\n",
		    bench->scale->idle_s, idle * 100, host * 100, device * 100);
}
