/* SPDX-License-Identifier: Apache-2.0 */
/* A client's stream and the service hand device memory back and forth by points of timelines, without
 * involving the host: by operations of the stream, and by requests of every kind.
 *
 * Each round's request is sent before what it waits for. Every request moves all bytes to other places, and
 * the stream changes one of them, so a round that comes too early, too late or not at all leaves wrong bytes
 * in all that follow. The bytes are compared with the same moves made on the host.
 */
#include <stdlib.h>
#include <string.h>

#include "clients.h"
#include "clients_store.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define SIDE   256
#define BYTES  ((size_t)SIDE * SIDE)
#define BLOCKS 64
#define BLOCK  (BYTES / BLOCKS)
#define HALF   (BYTES / 2)
#define DEPTH  2 /* rounds on the stream at a time, because a stream that waits can hold up others */

#define cuda(function, arguments)                                                                      \
	do {                                                                                           \
		struct error cuda_error;                                                               \
		require(driver_call(&cuda_error, function, arguments) == 0, "%s", cuda_error.message); \
	} while (0)

/* The kinds of request that move the memory's first half to its second, in turn. */
enum kind { RUN, ITEMS, GATHER, SCATTER, KINDS };

struct hand_over {
	tma_client *client;
	struct store data;  /* the source, followed by the destination */
	struct store words; /* two timelines: the stream's and the service's */
	CUdeviceptr word;   /* the device address of words */
	tma_plan *transpose, *half;
	int32_t index[BLOCKS];
	CUstream stream;
	CUevent before[DEPTH], after[DEPTH];
	uint8_t expected[BYTES], scratch[BYTES], found[2 * BYTES];
	uint64_t rounds, checked;
	float *ms; /* milliseconds of each round, from the stream's signal to the end of its wait */
};

/* ---- Set up
 * --------------------------------------------------------------------------------------------- */

static void prepare_plans(struct hand_over *own)
{
	struct tma_tensor square = {
		.region = own->data.region, .dtype = TMA_UINT8, .rank = 2, .shape = { SIDE, SIDE }
	};
	struct tma_tensor half = {
		.region = own->data.region, .dtype = TMA_UINT8, .rank = 1, .shape = { HALF }
	};
	struct tma_transform transpose = { .dst = &square, .src = &square, .perm = (int[]){ 1, 0 } };
	struct tma_transform copy = { .dst = &half, .src = &half };

	must(own->client, tma_plan_prepare(own->client, &transpose, &own->transpose));
	must(own->client, tma_plan_prepare(own->client, &copy, &own->half));
}

static void share_words(struct hand_over *own, bool on_host)
{
	const uint64_t zero[2] = { 0 };

	if (on_host) {
		store_host(&own->words, 4096);
		cuda(cuMemHostRegister, (own->words.host, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
		cuda(cuMemHostGetDevicePointer, (&own->word, own->words.host, 0));
	} else {
		store_allocate(&own->words, sizeof zero);
		store_write(&own->words, (const uint8_t *)zero);
		own->word = own->words.address;
	}
	store_share(&own->words, own->client, STORE_BY_POINTER, 0, sizeof zero);
}

static struct hand_over *begin(const struct service *service, uint64_t seed, bool on_host)
{
	struct hand_over *own = calloc(1, sizeof *own);
	uint64_t state = seed;

	require(own, "out of memory");
	own->rounds = service->is_stand_in ? 60 : 12000;
	own->ms = calloc(own->rounds, sizeof *own->ms);
	require(own->ms, "out of memory");
	own->client = client_connect(service);
	store_open_device();
	store_allocate(&own->data, 2 * BYTES);
	store_share(&own->data, own->client, STORE_BY_POINTER, 0, 2 * BYTES);
	for (size_t i = 0; i < 2 * BYTES; i++)
		own->found[i] = (uint8_t)oracle_random(&state);
	store_write(&own->data, own->found);
	memcpy(own->expected, own->found + BYTES, BYTES);
	share_words(own, on_host);
	prepare_plans(own);
	for (int32_t i = 0; i < BLOCKS; i++) {
		const int32_t at = (int32_t)(oracle_random(&state) % (uint64_t)(i + 1));

		own->index[i] = own->index[at];
		own->index[at] = i;
	}
	cuda(cuStreamCreateWithPriority, (&own->stream, CU_STREAM_NON_BLOCKING, 0));
	for (int i = 0; i < DEPTH; i++) {
		cuda(cuEventCreate, (&own->before[i], CU_EVENT_DEFAULT));
		cuda(cuEventCreate, (&own->after[i], CU_EVENT_DEFAULT));
	}
	return own;
}

static void end(struct hand_over *own)
{
	for (int i = 0; i < DEPTH; i++) {
		cuda(cuEventDestroy, (own->before[i]));
		cuda(cuEventDestroy, (own->after[i]));
	}
	cuda(cuStreamDestroy, (own->stream));
	if (own->words.host)
		cuda(cuMemHostUnregister, (own->words.host));
	store_free(&own->words);
	store_free(&own->data);
	tma_plan_release(own->transpose);
	tma_plan_release(own->half);
	tma_free(own->client);
	free(own->ms);
	free(own);
}

/* ---- A round
 * -------------------------------------------------------------------------------------------- */

static void submit_blocks(struct hand_over *own, bool scatter, const struct tma_order *order)
{
	struct tma_tensor dst = {
		.region = own->data.region, .offset = BYTES, .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK }
	};
	struct tma_tensor src = dst;
	struct tma_transform copy = { .dst = &dst, .src = &src };
	struct tma_blocks blocks = { .transform = &copy,
		                     .count = BLOCKS,
		                     .index_dtype = TMA_INT32,
		                     .index = own->index,
		                     .limit = BLOCKS,
		                     .order = order };

	src.offset = 0;
	if (scatter)
		must(own->client, tma_submit_scatter(own->client, &blocks, NULL));
	else
		must(own->client, tma_submit_gather(own->client, &blocks, NULL));
}

static void submit(struct hand_over *own, uint64_t round)
{
	tma_region *data = own->data.region;
	struct tma_order order = { .wait = { .region = own->words.region, .offset = 0, .value = round },
		                   .signal = { .region = own->words.region, .offset = 8, .value = round },
		                   .completion = TMA_COMPLETION_SIGNAL };
	struct tma_item items[] = {
		{ .plan = own->half,
		  .dst = { .region = data, .offset = BYTES },
		  .src = { .region = data, .offset = HALF } },
		{ .plan = own->half,
		  .dst = { .region = data, .offset = BYTES + HALF },
		  .src = { .region = data, .offset = 0 } },
	};

	switch ((enum kind)(round % KINDS)) {
	case RUN:
		must(own->client,
		     tma_submit_run(own->client, own->transpose,
		                    (struct tma_place){ .region = data, .offset = BYTES },
		                    (struct tma_place){ .region = data, .offset = 0 }, &order, NULL));
		break;
	case ITEMS:
		must(own->client, tma_submit_items(own->client, items, 2, &order, NULL));
		break;
	default:
		submit_blocks(own, round % KINDS == SCATTER, &order);
		break;
	}
}

/* Enqueues the stream's part of a round: the last round's result becomes the source again, with one byte
 * changed. */
static void enqueue(struct hand_over *own, uint64_t round)
{
	const CUdeviceptr data = own->data.address;
	const int slot = (int)(round % DEPTH);

	cuda(cuMemcpyDtoDAsync, (data, data + BYTES, BYTES, own->stream));
	cuda(cuMemsetD8Async, (data + round % BYTES, (unsigned char)round, 1, own->stream));
	cuda(cuEventRecord, (own->before[slot], own->stream));
	must(own->client, tma_stream_signal(own->client, own->stream, own->word, round));
	must(own->client, tma_stream_wait(own->client, own->stream, own->word + 8, round));
	cuda(cuEventRecord, (own->after[slot], own->stream));
}

/* Waits until the round is over. */
static void await(struct hand_over *own, uint64_t round)
{
	const int slot = (int)(round % DEPTH);
	CUresult r;

	while ((r = driver.cuEventQuery(own->after[slot])) == CUDA_ERROR_NOT_READY)
		must(own->client, tma_take_error(own->client));
	require(r == CUDA_SUCCESS, "round %d ended with error %d", (int)round, (int)r);
	cuda(cuEventElapsedTime, (&own->ms[round - 1], own->before[slot], own->after[slot]));
}

/* ---- The same here
 * -------------------------------------------------------------------------------------- */

static void expect(struct hand_over *own, uint64_t round)
{
	uint8_t *from = own->scratch, *to = own->expected;

	memcpy(from, to, BYTES);
	from[round % BYTES] = (uint8_t)round;
	switch ((enum kind)(round % KINDS)) {
	case RUN:
		for (size_t i = 0; i < BYTES; i++)
			to[i] = from[i % SIDE * SIDE + i / SIDE];
		break;
	case ITEMS:
		memcpy(to, from + HALF, HALF);
		memcpy(to + HALF, from, HALF);
		break;
	default:
		for (size_t i = 0; i < BLOCKS; i++) {
			const size_t at = (size_t)own->index[i];

			if (round % KINDS == GATHER)
				memcpy(to + i * BLOCK, from + at * BLOCK, BLOCK);
			else
				memcpy(to + at * BLOCK, from + i * BLOCK, BLOCK);
		}
		break;
	}
}

/* Checks all rounds up to this one, which has to be over. */
static void check(struct hand_over *own, uint64_t round)
{
	while (own->checked < round)
		expect(own, ++own->checked);
	store_read(&own->data, own->found);
	for (size_t i = 0; i < BYTES; i++)
		require(own->found[BYTES + i] == own->expected[i], "after round %d byte %zu is %#x, not %#x",
		        (int)round, i, own->found[BYTES + i], own->expected[i]);
}

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static void hand_over(const struct service *service, uint64_t seed, bool on_host)
{
	struct hand_over *own = begin(service, seed, on_host);
	const uint64_t rounds = own->rounds, stretch = rounds / 24 + 1;

	for (uint64_t round = 1; round <= rounds; round++) {
		submit(own, round);
		enqueue(own, round);
		if (round >= DEPTH)
			await(own, round - DEPTH + 1);
		if (round % stretch == 0 || round == rounds) {
			cuda(cuStreamSynchronize, (own->stream));
			check(own, round);
		}
	}
	must(own->client, tma_take_error(own->client));
	await(own, rounds);
	qsort(own->ms, rounds, sizeof *own->ms, by_value);
	tap_note(
	    "%d rounds, words %s; from the stream's signal by 64 KiB that the service moves to the end of its "
	    "wait: p50 %.1f us, p99 %.1f us",
	    (int)rounds, on_host ? "on the host" : "on the device", 1e3 * (double)own->ms[rounds / 2],
	    1e3 * (double)own->ms[rounds * 99 / 100]);
	end(own);
}

static void by_device_words(const struct service *service, uint64_t seed)
{
	hand_over(service, seed, false);
}

static void by_host_words(const struct service *service, uint64_t seed)
{
	hand_over(service, seed, true);
}

/* ---- The cases
 * -------------------------------------------------------------------------------------------- */

void order_cases(const struct service *service)
{
	static const struct {
		const char *name;
		client_run *runs[2];
	} rows[] = {
		{ "a stream and the service hand memory over by words on the device",
		  { by_device_words, NULL } },
		{ "by words on the host", { by_host_words, NULL } },
		{ "two clients at once", { by_device_words, by_host_words } },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool good = true;
		pid_t pids[2];

		for (int k = 0; k < 2; k++)
			pids[k] = rows[i].runs[k]
			              ? client_start(rows[i].runs[k], service, 900 + 10 * i + (uint64_t)k)
			              : 0;
		for (int k = 0; k < 2; k++)
			good = (!pids[k] || client_wait(pids[k])) && good;
		tap_case(good && service_lives(service), "%s", rows[i].name);
	}
}
