/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a conversation of valid requests, and spoils it. */
#include "steps.h"

#include <string.h>

#include "fuzz.h"
#include "stream.h"
#include "tests/support/oracle.h"
#include "traffic.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
	return oracle_random(random) % n;
}

/* ---- Bytes -------------------------------------------------------------------------------------------- */

static uint8_t take(const uint8_t *data, size_t size, size_t *at)
{
	return *at < size ? data[(*at)++] : 0;
}

void steps_read(struct steps *ret, const uint8_t *data, size_t size)
{
	size_t at = 0;

	*ret = (struct steps){ .held = take(data, size, &at) };
	while (at < size && ret->n < STEPS_MOST) {
		struct step *step = &ret->step[ret->n++];

		step->kind = take(data, size, &at) % STEP_KIND_COUNT;
		step->connection = take(data, size, &at);
		step->how = step->connection / STEP_CONNECTIONS;
		step->connection %= STEP_CONNECTIONS;
		if (step->kind != STEP_SEND)
			continue;
		step->n_fds = take(data, size, &at) % (STEP_MOST_FDS + 1);
		for (int i = 0; i < step->n_fds; i++)
			step->fds[i] = take(data, size, &at) % DESCRIPTOR_COUNT;
		step->len = take(data, size, &at);
		step->len |= (uint16_t)(take(data, size, &at) << 8);
		if (step->len > size - at)
			step->len = (uint16_t)(size - at);
		step->data = data + at;
		at += step->len;
	}
}

static void put(uint8_t *data, size_t max_size, size_t *at, const void *bytes, size_t n)
{
	if (n && n <= max_size - *at) {
		memcpy(data + *at, bytes, n);
		*at += n;
	}
}

static size_t steps_write(const struct steps *steps, uint8_t *data, size_t max_size)
{
	size_t at = 0;

	put(data, max_size, &at, &steps->held, 1);
	for (size_t i = 0; i < steps->n; i++) {
		const struct step *step = &steps->step[i];
		uint8_t head[5 + STEP_MOST_FDS] = { step->kind, (uint8_t)(step->connection +
			                                                  step->how * STEP_CONNECTIONS) };
		size_t n = 2;

		if (step->kind == STEP_SEND) {
			head[n++] = step->n_fds;
			memcpy(head + n, step->fds, step->n_fds);
			n += step->n_fds;
			head[n++] = (uint8_t)step->len;
			head[n++] = (uint8_t)(step->len >> 8);
		}
		if (at + n + step->len > max_size)
			break;
		put(data, max_size, &at, head, n);
		put(data, max_size, &at, step->data, step->len);
	}
	return at;
}

/* ---- Steps -------------------------------------------------------------------------------------------- */

/* New steps keep their bytes here until they are written. */
static uint8_t arena[STEPS_MOST * TRAFFIC_MOST];
static size_t arena_used;

static uint8_t *keep(const uint8_t *data, size_t len)
{
	uint8_t *at = arena + arena_used;

	memcpy(at, data, len);
	arena_used += len;
	return at;
}

static struct step other_step(uint64_t *random)
{
	static const uint8_t kinds[] = { STEP_READ, STEP_WORK,  STEP_WORK, STEP_JOB,  STEP_JOB,
		                         STEP_SHUT, STEP_CLOSE, STEP_TIME, STEP_DRAIN };

	return (struct step){ .kind = kinds[below(random, sizeof kinds)],
		              .connection = (uint8_t)below(random, STEP_CONNECTIONS),
		              .how = (uint8_t)below(random, 8) };
}

/* One to three valid requests sent at once, with their descriptors. */
static struct step valid_send(uint64_t *random, uint8_t connection)
{
	struct step step = { .kind = STEP_SEND, .connection = connection };
	uint8_t message[TRAFFIC_MOST], *start = arena + arena_used;
	const struct method *method;

	for (uint64_t n = 1 + below(random, 3); n && arena_used + 2 * TRAFFIC_MOST < sizeof arena; n--) {
		size_t len = traffic_request(message, (uint32_t)below(random, 64), random, &method);

		keep(message, len);
		step.len = (uint16_t)(step.len + len);
		if (method->fds && step.n_fds < STEP_MOST_FDS)
			step.fds[step.n_fds++] =
			    below(random, 4) ? DESCRIPTOR_MEMFD : (uint8_t)below(random, DESCRIPTOR_COUNT);
	}
	step.data = start;
	return step;
}

static struct step register_send(uint8_t connection, uint32_t msgid)
{
	uint8_t message[TRAFFIC_MOST];
	size_t len = traffic_register(message, msgid);

	return (struct step){ .kind = STEP_SEND,
		              .connection = connection,
		              .n_fds = 1,
		              .fds = { DESCRIPTOR_MEMFD },
		              .len = (uint16_t)len,
		              .data = keep(message, len) };
}

static struct step prepare_send(uint8_t connection, uint32_t msgid, uint64_t *random, enum method_id method)
{
	uint8_t message[TRAFFIC_MOST];
	size_t len = traffic_request_of(message, msgid, random, method);

	return (struct step){
		.kind = STEP_SEND, .connection = connection, .len = (uint16_t)len, .data = keep(message, len)
	};
}

static void conversation(struct steps *steps, uint64_t *random)
{
	uint8_t connection = (uint8_t)below(random, STEP_CONNECTIONS);

	*steps = (struct steps){ .held = (uint8_t)below(random, 4) };
	for (uint32_t i = 0; i < 2; i++)
		steps->step[steps->n++] = register_send(connection, i);
	for (int i = 0; i < 2; i++)
		steps->step[steps->n++] = (struct step){ .kind = STEP_WORK };
	if (below(random, 2))
		steps->step[steps->n++] = prepare_send(connection, 2, random, METHOD_plan_prepare);
	if (below(random, 4) == 0)
		for (uint32_t i = 3; i < 5; i++)
			steps->step[steps->n++] = prepare_send(connection, i, random, METHOD_table_prepare);
	for (uint64_t n = below(random, 12); n; n--)
		steps->step[steps->n++] =
		    below(random, 3) ? valid_send(random, connection) : other_step(random);
}

/* ---- Changes ------------------------------------------------------------------------------------------ */

static void insert(struct steps *steps, size_t at, struct step step)
{
	if (steps->n == STEPS_MOST)
		return;
	memmove(&steps->step[at + 1], &steps->step[at], (steps->n - at) * sizeof step);
	steps->step[at] = step;
	steps->n++;
}

static void take_out(struct steps *steps, size_t at)
{
	steps->n--;
	memmove(&steps->step[at], &steps->step[at + 1], (steps->n - at) * sizeof *steps->step);
}

/* Returns a random step that sends; NULL if there is none. */
static struct step *some_send(struct steps *steps, uint64_t *random)
{
	struct step *chosen = NULL;
	uint64_t seen = 0;

	for (size_t i = 0; i < steps->n; i++)
		if (steps->step[i].kind == STEP_SEND && below(random, ++seen) == 0)
			chosen = &steps->step[i];
	return chosen;
}

static void change_fds(struct step *step, uint64_t *random)
{
	uint8_t kind = (uint8_t)below(random, DESCRIPTOR_COUNT);

	if (step->n_fds == 0 || (step->n_fds < STEP_MOST_FDS && below(random, 3) == 0))
		step->fds[step->n_fds++] = kind;
	else if (below(random, 2))
		step->n_fds--;
	else
		step->fds[below(random, step->n_fds)] = kind;
}

static void change_bytes(struct step *step, uint64_t *random)
{
	uint8_t bytes[2 * TRAFFIC_MOST];
	size_t len = step->len < TRAFFIC_MOST ? step->len : TRAFFIC_MOST;

	memcpy(bytes, step->data, len);
	len = below(random, 4) ? stream_spoil(bytes, len, sizeof bytes, random)
	                       : LLVMFuzzerMutate(bytes, len, sizeof bytes);
	step->data = keep(bytes, len);
	step->len = (uint16_t)len;
}

/* The descriptors stay with the first part or go with the second. */
static void cut_in_two(struct steps *steps, struct step *step, uint64_t *random)
{
	struct step first = *step, second = *step;

	if (step->len < 2 || steps->n == STEPS_MOST)
		return;
	first.len = (uint16_t)(1 + below(random, step->len - 1u));
	second.len = (uint16_t)(step->len - first.len);
	second.data = step->data + first.len;
	*(below(random, 2) ? &first.n_fds : &second.n_fds) = 0;
	*step = first;
	insert(steps, (size_t)(step - steps->step) + 1, second);
}

static void change(struct steps *steps, uint64_t *random)
{
	size_t at = below(random, steps->n + 1), other = steps->n ? below(random, steps->n) : 0;
	struct step *send = some_send(steps, random), kept;

	switch (below(random, 10)) {
	case 0:
		insert(steps, at, other_step(random));
		break;
	case 1:
		insert(steps, at, valid_send(random, (uint8_t)below(random, STEP_CONNECTIONS)));
		break;
	case 2:
		if (at < steps->n)
			take_out(steps, at);
		break;
	case 3:
		if (at < steps->n) {
			kept = steps->step[at];
			steps->step[at] = steps->step[other];
			steps->step[other] = kept;
		}
		break;
	case 4:
		if (steps->n)
			insert(steps, at, steps->step[other]);
		break;
	case 5:
		if (send)
			change_fds(send, random);
		break;
	case 6:
		if (send)
			cut_in_two(steps, send, random);
		break;
	case 7:
		steps->held = (uint8_t)below(random, 4);
		break;
	default:
		if (send)
			change_bytes(send, random);
	}
}

size_t steps_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	static uint8_t before[1 << 16];
	uint64_t random = seed;
	struct steps steps;

	arena_used = 0;
	if (size > sizeof before)
		size = sizeof before;
	if (size && below(&random, 16) == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	if (size == 0) {
		conversation(&steps, &random);
	} else {
		memcpy(before, data, size);
		steps_read(&steps, before, size);
		for (uint64_t times = 1 + below(&random, 3); times; times--)
			change(&steps, &random);
	}
	return steps_write(&steps, data, max_size);
}
