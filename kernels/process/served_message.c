/* SPDX-License-Identifier: Apache-2.0 */
/* The child's ends of both rings: what the front has asked for, and what has come of it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/backing.h"
#include "kernels/transform/layer_table.h"
#include "served.h"

#define KEEP_BYTES ((size_t)1 << 16)

/* ---- What the front has asked for --------------------------------------------------------------------- */

/* The next sizes of tables by number. */
static void *grow(struct served *served, void *table, uint32_t *n, uint32_t number, size_t size)
{
	uint32_t room = *n ? *n : 64;
	char *grown;

	if (number < *n)
		return table;
	while (room <= number)
		room *= 2;
	grown = realloc(table, room * size);
	if (!grown)
		served_die(served, "out of memory");
	memset(grown + *n * size, 0, (room - *n) * size);
	*n = room;
	return grown;
}

static void on_layout(struct served *served, const struct wire_layout *layout)
{
	const uint32_t number = layout->layout;

	served->layouts =
	    grow(served, served->layouts, &served->n_layouts, number, sizeof(struct engine_plan *));
	served->layouts[number] = plan_cache_make(served->engine->plans, &layout->transform, layout->places);
	if (!served->layouts[number])
		served_die(served, "out of memory");
}

static void on_forget_layout(struct served *served, uint32_t number)
{
	engine_plan_unref(served->layouts[number]);
	served->layouts[number] = NULL;
}

static struct served_owner *owner_of(struct served *served, uint64_t number)
{
	struct served_owner *owner;

	LIST_FOREACH(owner, &served->owners, entry)
		if (owner->number == number)
			return owner;
	owner = calloc(1, sizeof *owner);
	if (!owner)
		served_die(served, "out of memory");
	owner->number = number;
	engine_owner_init(&owner->owner);
	LIST_INSERT_HEAD(&served->owners, owner, entry);
	return owner;
}

static struct engine_stream *stream_of(struct served *served, uint32_t number, uint64_t owner)
{
	struct served_stream *stream;

	served->streams =
	    grow(served, served->streams, &served->n_streams, number, sizeof(struct served_stream));
	stream = &served->streams[number];
	if (stream->stream)
		return stream->stream;
	stream->owner = owner_of(served, owner);
	stream->stream = engine_stream_new(served->engine, &stream->owner->owner);
	if (!stream->stream)
		served_die(served, "out of memory");
	return stream->stream;
}

void served_free_stream(struct served *served, uint32_t number)
{
	struct served_stream *stream = &served->streams[number];

	engine_stream_free(served->engine, stream->stream);
	if (stream->owner->owner.streams == 0) {
		engine_owner_deinit(&stream->owner->owner);
		LIST_REMOVE(stream->owner, entry);
		free(stream->owner);
	}
	*stream = (struct served_stream){ 0 };
}

/* Of memory of a job that failed: what the front cannot see. */
static void tell_pins(struct served *served, const struct engine_memory *memory)
{
	struct wire_number message = { { sizeof message, WIRE_PINS_LOST }, 0, 0 };

	if (!memory || !memory->backing || !atomic_load(&memory->backing->is_lost))
		return;
	while (atomic_load(&served->memories[message.number]) != memory)
		if (++message.number == atomic_load(&served->memories_end))
			return;
	if (buffer_append(&served->out, &message, sizeof message) < 0)
		served_die(served, "out of memory");
}

static void tell_move_pins(struct served *served, const struct engine_move *move)
{
	tell_pins(served, move->dst);
	tell_pins(served, move->src);
	tell_pins(served, move->scale.memory);
	tell_pins(served, move->bias.memory);
	tell_pins(served, move->amax_scale.memory);
	tell_pins(served, move->amax_inverse.memory);
}

static void tell_table_pins(struct served *served, const struct layer_table *table)
{
	for (uint32_t i = 0; table && i < table->n; i++)
		tell_pins(served, table->memories[i]);
}

static void tell_job_pins(struct served *served, const struct served_job *job)
{
	tell_pins(served, job->job.signal.memory);
	tell_pins(served, job->blocks.index_memory);
	tell_table_pins(served, job->tables[0]);
	tell_table_pins(served, job->tables[1]);
	if (!job->job.moves)
		tell_move_pins(served, &job->job.move);
	for (uint32_t i = 0; job->job.moves && i < job->job.n_moves; i++)
		if (job->moves[i].status == STATUS_DEVICE)
			tell_move_pins(served, &job->moves[i]);
}

/* From engine_reap. */
static void on_done(struct engine_job *engine_job)
{
	struct served_job *job = (struct served_job *)engine_job;
	struct served *served = job->served;

	if (engine_job->status == STATUS_DEVICE)
		tell_job_pins(served, job);
	if (served_job_write(served, job) < 0)
		served_die(served, "out of memory");
	atomic_fetch_add(&served->ended, 1);
	served->jobs[job->number] = NULL;
	served->under_way--;
	served_job_free(job);
}

static void on_job(struct served *served, const struct wire_job *wire)
{
	struct engine_stream *stream = stream_of(served, wire->stream, wire->owner);
	struct served_job *job = served_job_new(served, wire);

	if (!job)
		served_die(served, "out of memory");
	job->job.on_done = on_done;
	served->jobs = grow(served, served->jobs, &served->n_jobs, job->number, sizeof(struct served_job *));
	served->jobs[job->number] = job;
	served->under_way++;
	engine_submit(served->engine, stream, &job->job);
}

/* Nothing is asked of the engine once the front does not wait any more: what it was told has to stay true. */
static void on_cancel(struct served *served, const struct wire_number *message)
{
	struct served_job *job = message->number < served->n_jobs ? served->jobs[message->number] : NULL;
	unsigned asked = message->cancel, taken = asked | CANCEL_TAKEN;
	bool is_done;

	if (!atomic_compare_exchange_strong(&served->shared->cancel, &asked, taken))
		return;
	is_done = job && engine_cancel(served->engine, served->streams[job->stream].stream, &job->job);
	/* A front that has given up may have asked for something else meanwhile. */
	if (atomic_compare_exchange_strong(&served->shared->cancel, &taken,
	                                   message->cancel | (is_done ? CANCEL_DONE : CANCEL_REFUSED)))
		shared_wake(&served->shared->cancel);
}

static void on_message(struct served *served, const struct wire_head *head)
{
	const struct wire_number *number = (const void *)head;

	switch (head->kind) {
	case WIRE_LAYOUT:
		on_layout(served, (const void *)head);
		break;
	case WIRE_FORGET_LAYOUT:
		on_forget_layout(served, number->number);
		break;
	case WIRE_JOB:
		on_job(served, (const void *)head);
		break;
	case WIRE_CANCEL:
		on_cancel(served, number);
		break;
	case WIRE_CANCEL_STREAM:
		engine_stream_cancel(served->engine, served->streams[number->number].stream);
		break;
	case WIRE_FREE_STREAM:
		served_free_stream(served, number->number);
		break;
	default:
		served_die(served, "the front has sent what makes no sense");
	}
}

/* ---- The rings ---------------------------------------------------------------------------------------- */

/* The front is woken if it sleeps, and something has come back or there is room for more. */
static void wake_front(struct served *served)
{
	const uint64_t one = 1;
	ssize_t n;

	if (!atomic_load(&served->shared->front_sleeps) ||
	    !atomic_exchange(&served->shared->front_sleeps, false))
		return;
	n = write(served->doorbell, &one, sizeof one);
	(void)n;
}

static void drop(struct served *served, size_t size)
{
	if (ring_drop(&served->from_front, size))
		wake_front(served);
}

/* A message that the ring may not hold at once. */
static bool collect(struct served *served)
{
	size_t n;
	const char *data = ring_peek(&served->from_front, &n);
	const size_t has = buffer_len(&served->in);
	const struct wire_head *head = has > 0 ? (const void *)served->in.data : (const void *)data;
	const size_t size = head->size;

	n = n < size - has ? n : size - has;
	if (n == 0)
		return false;
	if (buffer_append(&served->in, data, n) < 0)
		served_die(served, "out of memory");
	drop(served, n);
	if (has + n < size)
		return true;
	on_message(served, (const void *)served->in.data);
	buffer_consume(&served->in, size, KEEP_BYTES);
	return true;
}

/* false: there is none that has come completely. */
bool served_take_message(struct served *served)
{
	const struct wire_head *head;
	size_t n;

	head = (const void *)ring_peek(&served->from_front, &n);
	if (buffer_len(&served->in) > 0)
		return collect(served);
	if (n < sizeof *head)
		return false;
	if (head->size > RING_ROOM / 2)
		return collect(served);
	if (n < head->size)
		return false;
	n = head->size;
	on_message(served, head);
	drop(served, n);
	return true;
}

/* What has come back, as far as there is room; the rest when the front has made some. */
void served_flush(struct served *served)
{
	bool any = false;

	while (buffer_len(&served->out) > 0) {
		const size_t n = ring_write(&served->to_front, served->out.data + served->out.start,
		                            buffer_len(&served->out));

		any |= n > 0;
		buffer_consume(&served->out, n, KEEP_BYTES);
		if (n == 0 && ring_wait_for_room(&served->to_front))
			break;
	}
	if (any)
		wake_front(served);
}
