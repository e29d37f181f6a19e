/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random data and places, and enqueues calls. */
#include "turn.h"

#include <stdlib.h>

#include "tests/support/oracle.h"

#define ALIGN        256
#define SAMPLE_BYTES (128ull << 20) /* bytes that a run moves, unless that takes too many calls */
#define MAX_CALLS    32
#define RANDOM       (64u << 20)
#define LEAD         (128u << 20) /* bytes that a copy ahead of the calls reads */
#define POISON       0xa5

/* Pinned host memory, enlarged on demand. */
struct host {
	uint8_t *data;
	size_t size;
};

struct rig turn_rig;
static bool is_open;
static CUdeviceptr random_bytes;
static uint64_t random_mask;
static CUdeviceptr lead_dst, lead_src;
static struct host dst_host, src_host;

/* ---- Data ------------------------------------------------------------------------------------------- */

/* Writes random bits, of which only those of the mask are kept. */
static void make_random(uint64_t mask)
{
	uint64_t *host = malloc(RANDOM), state = 1;

	if (!host)
		rig_die("out of memory");
	for (size_t i = 0; i < RANDOM / 8; i++)
		host[i] = oracle_random(&state) & mask;
	if (!random_bytes)
		random_bytes = rig_new(RANDOM);
	random_mask = mask;
	rig_call(cuMemcpyHtoDAsync, (random_bytes, host, RANDOM, turn_rig.stream));
	rig_wait(&turn_rig);
	free(host);
}

/* Keeps the numbers that a row converts below 2, and NaN and infinities rare. */
static uint64_t mask_of(const struct bench_row *row)
{
	if (!row->converts || dtype_class(row->dtype) != DTYPE_CLASS_FLOATING)
		return UINT64_MAX;
	switch (dtype_size(row->dtype)) {
	case 1:
		return ~UINT64_C(0x4040404040404040);
	case 2:
		return ~UINT64_C(0x4000400040004000);
	case 4:
		return ~UINT64_C(0x4000000040000000);
	default:
		return ~UINT64_C(0x4000000000000000);
	}
}

static CUdeviceptr new_random(size_t size, uint64_t mask)
{
	CUdeviceptr memory = rig_new(size);

	if (mask != random_mask)
		make_random(mask);

	for (size_t at = 0; at < size; at += RANDOM)
		rig_call(cuMemcpyDtoDAsync, (memory + at, random_bytes,
		                             size - at < RANDOM ? size - at : RANDOM, turn_rig.stream));
	return memory;
}

/* Returns at least that many bytes of host memory. */
static uint8_t *host_room(struct host *host, size_t size)
{
	if (host->size >= size)
		return host->data;
	if (host->data)
		rig_call(cuMemHostUnregister, (host->data));
	free(host->data);
	host->size = (size + RANDOM) / RANDOM * RANDOM;
	host->data = aligned_alloc(4096, host->size);
	if (!host->data)
		rig_die("out of memory");
	rig_call(cuMemHostRegister, (host->data, host->size, 0));
	return host->data;
}

static void host_free(struct host *host)
{
	if (host->data)
		rig_call(cuMemHostUnregister, (host->data));
	free(host->data);
}

/* ---- A row ------------------------------------------------------------------------------------------ */

static size_t most_of(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Lists the plans that the service would try. */
static void set_plans(struct turn *turn, const struct program_options *options)
{
	const uint64_t dst = turn->dst + turn->dst_offset, src = turn->src + turn->src_offset;
	const struct plan_facts facts = rig_facts(&turn_rig, dst, src);
	struct plan plan;

	plan_init(&plan, &turn->transform, &facts);
	if (!options->no_tune && alternatives_are_worth_trying(&plan, turn->transform.bytes, &facts.copy))
		alternatives_init(&turn->alternatives, &plan, &turn->transform, &facts);
	else
		turn->alternatives = (struct alternatives){ .n = 1, .plan = { plan } };
	turn->chosen = turn->plan = &turn->alternatives.plan[0];
}

int turn_init(struct turn *turn, const struct bench_row *row, const struct program_options *options,
              struct error *err)
{
	struct transform *t = &turn->transform;
	int64_t first;
	int r;

	*turn = (struct turn){ .row = row };
	r = bench_row_spec(row, &turn->spec, &first, err);
	if (r == 0)
		r = transform_init(t, &turn->spec, err);
	if (r < 0)
		return r;
	turn->dst_offset = (size_t)row->offset * t->element;
	turn->src_offset = (size_t)first * t->src_element;
	turn->dst_bytes = turn->dst_offset + (size_t)t->dst_extent.high;
	turn->src_bytes = turn->src_offset + (size_t)t->src_extent.high;
	for (int i = 0; i < TURN_EVENTS; i++)
		rig_call(cuEventCreate, (&turn->event[i], CU_EVENT_DEFAULT));
	/* A place has room for the copy as well, which uses the same places. */
	turn->pitch = (most_of(most_of(turn->dst_bytes, turn->src_bytes), t->bytes / 2) / ALIGN + 2) * ALIGN;
	turn->n_places =
	    most_of(2, options->quick ? 0 : 2 * (size_t)turn_rig.device.l2_bytes / turn->pitch + 1);
	turn->calls = (int)(t->bytes ? SAMPLE_BYTES / t->bytes : 1);
	turn->calls = turn->calls < 1 ? 1 : turn->calls > MAX_CALLS ? MAX_CALLS : turn->calls;
	turn->leads = 1;
	turn->lead = LEAD;
	if (options->quick) {
		turn->calls = 2;
		turn->lead = ALIGN;
	}
	turn->dst = rig_new(turn->n_places * turn->pitch);
	turn->src = new_random(turn->n_places * turn->pitch, mask_of(row));
	if (row->amax[0])
		turn->scales = rig_new((size_t)t->conversion.amax.scale.extent.high);
	rig_call(cuMemsetD8Async, (turn->dst, POISON, turn->n_places * turn->pitch, turn_rig.stream));
	set_plans(turn, options);
	return 0;
}

void turn_deinit(struct turn *turn)
{
	rig_free(turn->dst);
	rig_free(turn->src);
	rig_free(turn->scales);
	for (int i = 0; i < TURN_EVENTS; i++)
		rig_call(cuEventDestroy, (turn->event[i]));
}

/* Returns the bytes from the first place to the next one. */
static size_t next_place(struct turn *turn)
{
	turn->place = turn->place + 1 < turn->n_places ? turn->place + 1 : 0;
	return turn->place * turn->pitch;
}

void turn_copy(struct turn *turn)
{
	size_t at = next_place(turn);

	rig_call(cuMemcpyDtoDAsync,
	         (turn->dst + at, turn->src + at, turn->transform.bytes / 2, turn_rig.stream));
}

void turn_launch(struct turn *turn)
{
	size_t at = next_place(turn);

	rig_launch(&turn_rig, &turn->transform, turn->plan, turn->dst + at + turn->dst_offset,
	           turn->src + at + turn->src_offset, turn->row->scale, turn->scales);
}

int turn_check(struct turn *turn, struct error *err)
{
	size_t at = turn->place * turn->pitch;
	uint8_t *dst = host_room(&dst_host, turn->dst_bytes), *src = host_room(&src_host, turn->src_bytes);

	rig_call(cuMemcpyDtoHAsync, (dst, turn->dst + at, turn->dst_bytes, turn_rig.stream));
	if (turn->src_bytes && turn->held != turn->place + 1)
		rig_call(cuMemcpyDtoHAsync, (src, turn->src + at, turn->src_bytes, turn_rig.stream));
	rig_wait(&turn_rig);
	turn->held = turn->place + 1;
	return bench_row_check(turn->row, &turn->spec, dst + turn->dst_offset, src + turn->src_offset, err);
}

int turn_try(struct turn *turn, struct error *err)
{
	turn->place = turn->n_places - 1;
	rig_call(cuMemsetD8Async, (turn->dst, POISON, turn->pitch, turn_rig.stream));
	turn_launch(turn);
	return turn_check(turn, err);
}

void turn_lead(struct turn *turn)
{
	for (int i = 0; i < turn->leads; i++)
		rig_call(cuMemcpyDtoDAsync, (lead_dst, lead_src, turn->lead, turn_rig.stream));
	rig_call(cuEventRecord, (turn->event[0], turn_rig.stream));
}

/* ---- What rows share -------------------------------------------------------------------------------- */

bool turn_open(struct error *err)
{
	is_open = rig_open(&turn_rig, NULL, err);
	if (!is_open)
		return false;
	lead_dst = rig_new(LEAD);
	lead_src = new_random(LEAD, UINT64_MAX);
	return true;
}

void turn_close(void)
{
	if (!is_open)
		return;
	host_free(&dst_host);
	host_free(&src_host);
	rig_free(lead_src);
	rig_free(lead_dst);
	rig_free(random_bytes);
	rig_close(&turn_rig);
}
