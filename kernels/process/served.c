/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and calls in the child.
 *
 * Jobs in messages are turned into jobs of the engine: numbers become pointers, and the distances between
 * layers become those in this process. Calls are handled by threads of their own: one accepts sockets from
 * the control socket, and one for each of these sockets carries out its calls, one after the other. These
 * threads end with the process.
 */
#include "served.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "kernels/host/backing.h"
#include "kernels/thread.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "proto/wire/socket.h"

/* Returns the memory with that number; NULL for WIRE_NONE. */
static struct engine_memory *served_memory(struct served *served, uint32_t number)
{
	return number == WIRE_NONE ? NULL : atomic_load(&served->memories[number]);
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

static bool allocate(struct layer_table *table, uint32_t n)
{
	table->n = n;
	table->noun = "table";
	table->places = calloc(n, sizeof *table->places);
	table->memories = calloc(n, sizeof *table->memories);
	table->layers = calloc(n, sizeof *table->layers);
	table->order = calloc(n, sizeof *table->order);
	return table->places && table->memories && table->layers && table->order;
}

static void free_table(struct layer_table *table)
{
	if (!table)
		return;
	free((void *)table->places);
	free((void *)table->memories);
	free(table->layers);
	free(table->order);
	free(table);
}

/* Fills a table with addresses in this process. The front has checked the entries. */
static bool fill(struct served *served, struct layer_table *table, const struct wire_entry *entries)
{
	struct layer_place *places = (struct layer_place *)table->places;
	struct engine_memory **memories = (struct engine_memory **)table->memories;
	struct error ignored;

	for (uint32_t i = 0; i < table->n; i++) {
		const struct engine_memory *memory = served_memory(served, entries[i].memory);

		memories[i] = (struct engine_memory *)memory;
		places[i] = (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                                  .base = memory->base,
			                                  .offset = entries[i].offset,
			                                  .size = memory->size },
			                          .address = memory->address + entries[i].offset };
	}
	return layer_table_init(table, table->noun, &ignored) == 0;
}

static struct layer_table *new_table(struct served *served, const struct wire_entry *entries, uint32_t n)
{
	struct layer_table *table = calloc(1, sizeof *table);

	if (table && allocate(table, n) && fill(served, table, entries))
		return table;
	free_table(table);
	return NULL;
}

/* ---- From a message ----------------------------------------------------------------------------------- */

static struct engine_point point_of(struct served *served, const struct wire_point *wire)
{
	return (struct engine_point){ served_memory(served, wire->memory), wire->offset, wire->value };
}

static struct engine_operand operand_of(struct served *served, const struct wire_operand *wire)
{
	return (struct engine_operand){ wire->number, served_memory(served, wire->memory), wire->offset };
}

static struct engine_move move_of(struct served *served, const struct wire_move *wire)
{
	struct engine_plan *plan = served->layouts[wire->layout];

	struct engine_move ret = { .transform = &plan->transform,
		                   .plan = plan,
		                   .dst = served_memory(served, wire->dst),
		                   .src = served_memory(served, wire->src),
		                   .dst_offset = wire->dst_offset,
		                   .src_offset = wire->src_offset };

	for (int i = 0; i < ROLE_COUNT; i++)
		ret.operand[i] = operand_of(served, &wire->operand[i]);
	return ret;
}

/* Sets *side from the message's data at *at, and *table if the side has a table. Moves *at behind the side's
 * data. *at points into the job's own copy of the data, which follows the job's moves. Returns false if there
 * is no memory. */
static bool take_side(struct served_job *job, const struct wire_side *wire, struct engine_blocks_side *side,
                      struct layer_table **table, const char **at)
{
	*side = (struct engine_blocks_side){ .step = wire->step, .layer_step = wire->layer_step };
	if (wire->n_layers)
		side->layers = (const int64_t *)(const void *)*at;
	*at += wire->n_layers * sizeof(int64_t);
	if (wire->n_table) {
		*table = new_table(job->served, (const void *)*at, wire->n_table);
		if (!*table)
			return false;
		blocks_use_table(side, *table);
	}
	*at += wire->n_table * sizeof(struct wire_entry);
	return true;
}

static bool take_blocks(struct served_job *job, const struct wire_blocks *wire, const char *at)
{
	struct engine_blocks *blocks = &job->blocks;

	*blocks = (struct engine_blocks){ .n = wire->n,
		                          .layers = wire->layers,
		                          .scatter = wire->scatter,
		                          .pairs = wire->pairs,
		                          .index_bytes = wire->index_bytes,
		                          .limit = wire->limit,
		                          .dst_limit = wire->dst_limit,
		                          .index_memory = served_memory(job->served, wire->index_memory),
		                          .index_offset = wire->index_offset };
	job->job.blocks = blocks;
	if (!take_side(job, &wire->dst, &blocks->dst, &job->tables[0], &at) ||
	    !take_side(job, &wire->src, &blocks->src, &job->tables[1], &at))
		return false;
	if (wire->index_size)
		blocks->index = at;
	return true;
}

struct served_job *served_job_new(struct served *served, const struct wire_job *wire)
{
	const struct wire_move *moves = (const void *)(wire + 1);
	const char *rest = (const char *)(moves + wire->n_moves);
	const size_t rest_bytes = wire->head.size - (size_t)(rest - (const char *)wire);
	const uint32_t n_batch = wire->is_batch ? wire->n_moves : 0;
	struct served_job *job = malloc(sizeof *job + n_batch * sizeof job->moves[0] + rest_bytes);
	char *at;

	if (!job)
		return NULL;
	*job = (struct served_job){ .served = served, .number = wire->job, .stream = wire->stream };
	job->job = (struct engine_job){ .wait = point_of(served, &wire->wait),
		                        .wait_until_ns = wire->wait_until_ns,
		                        .signal = point_of(served, &wire->signal),
		                        .share = wire->share };
	for (uint32_t i = 0; i < n_batch; i++)
		job->moves[i] = move_of(served, &moves[i]);
	if (wire->is_batch) {
		job->job.moves = job->moves;
		job->job.n_moves = n_batch;
	} else {
		job->job.move = move_of(served, &moves[0]);
	}
	at = (char *)(job->moves + n_batch);
	memcpy(at, rest, rest_bytes);
	if (!wire->has_blocks || take_blocks(job, &wire->blocks, at))
		return job;
	served_job_free(job);
	return NULL;
}

void served_job_free(struct served_job *job)
{
	free_table(job->tables[0]);
	free_table(job->tables[1]);
	free(job);
}

/* ---- To a message ------------------------------------------------------------------------------------- */

int served_job_write(struct served *served, const struct served_job *done)
{
	const struct engine_job *job = &done->job;
	const uint32_t n = job->moves ? job->n_moves : 0;
	const size_t size = sizeof(struct wire_done) + n * sizeof(struct wire_move_done);
	const struct wire_done wire = { .head = { (uint32_t)size, WIRE_DONE },
		                        .job = done->number,
		                        .status = job->status,
		                        .ns = job->ns,
		                        .changed = job->move.changed,
		                        .passed = done->blocks.passed,
		                        .beyond = done->blocks.beyond,
		                        .family = job->blocks ? done->blocks.family : job->move.family,
		                        .begun = job->begun,
		                        .is_measured = job->is_measured,
		                        .n_moves = n };

	if (!buffer_reserve(&served->out, size))
		return STATUS_NO_MEMORY;
	buffer_append(&served->out, &wire, sizeof wire);
	for (uint32_t i = 0; i < n; i++) {
		const struct wire_move_done move = { job->moves[i].changed, job->moves[i].status,
			                             job->moves[i].family };

		buffer_append(&served->out, &move, sizeof move);
	}
	return 0;
}

/* ---- Threads for calls --------------------------------------------------------------------------------- */

struct caller {
	struct served *served;
	uint32_t number;
	int socket;
};

static void *take_sockets(void *arg);
static void *take_calls(void *arg);

/* Starts a thread that nobody joins. Returns 0 or an errno. */
static int start(void *(*run)(void *arg), void *arg)
{
	pthread_t thread;
	const int r = thread_start(&thread, run, arg);

	if (r == 0)
		pthread_detach(thread);
	return r;
}

int served_memory_start(struct served *served, struct error *err)
{
	const int r = start(take_sockets, served);

	if (r == 0)
		return 0;
	return error_set(err, STATUS_NO_MEMORY, "a thread for calls cannot be started: %s", strerror(r));
}

/* ---- Sockets ------------------------------------------------------------------------------------------ */

static bool start_caller(struct served *served, uint32_t number, int socket)
{
	struct caller *caller = malloc(sizeof *caller);

	if (!caller)
		return false;
	*caller = (struct caller){ served, number, socket };
	return start(take_calls, caller) == 0;
}

static void *take_sockets(void *arg)
{
	struct served *served = arg;
	struct wire_socket message;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;
	ssize_t n;

	pthread_setname_np(pthread_self(), "engine-sockets");
	while ((n = socket_receive(served->control, &message, sizeof message, fds, &n_fds)) > 0)
		if (n != (ssize_t)sizeof message || n_fds != 1 ||
		    !start_caller(served, message.number, fds[0]))
			served_die(served, "it has no memory or threads for calls");
	atomic_store(&served->is_closing, true);
	shared_ring(served->shared);
	return NULL;
}

/* ---- Calls -------------------------------------------------------------------------------------------- */

/* A call that was received. Its descriptors are closed when it has been answered. */
struct request {
	struct wire_call call;
	int fd;
	struct engine_part *parts;
	struct wire_layout *layout; /* for WIRE_EXPLAIN; otherwise NULL */
};

static bool receive_layout(struct caller *caller, struct request *request)
{
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;

	request->layout = malloc(sizeof *request->layout);
	return request->layout && socket_receive(caller->socket, request->layout, sizeof *request->layout,
	                                         fds, &n_fds) == (ssize_t)sizeof *request->layout;
}

static bool receive_parts(struct caller *caller, struct request *request)
{
	struct wire_part parts[WIRE_PARTS];
	int fds[SOCKET_MAX_FDS];

	request->parts = calloc(request->call.n_parts, sizeof *request->parts);
	if (!request->parts)
		return false;
	for (uint32_t i = 0; i < request->call.n_parts; i++)
		request->parts[i].fd = -1;
	for (uint32_t i = 0; i < request->call.n_parts;) {
		size_t n_fds = 0, used = 0;
		const ssize_t n = socket_receive(caller->socket, parts, sizeof parts, fds, &n_fds);

		if (n <= 0)
			return false;
		for (size_t j = 0; j < (size_t)n / sizeof *parts; j++, i++) {
			const bool has_fd = parts[j].memory == WIRE_NONE;

			request->parts[i] =
			    (struct engine_part){ .fd = has_fd && used < n_fds ? fds[used] : -1,
				                  .memory = served_memory(caller->served, parts[j].memory),
				                  .offset = parts[j].offset,
				                  .size = parts[j].size };
			used += has_fd;
		}
	}
	return true;
}

static bool receive(struct caller *caller, struct request *ret)
{
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;
	const ssize_t n = socket_receive(caller->socket, &ret->call, sizeof ret->call, fds, &n_fds);

	ret->parts = NULL;
	ret->layout = NULL;
	ret->fd = n_fds > 0 ? fds[0] : -1;
	if (n != (ssize_t)sizeof ret->call)
		return false;
	if (ret->call.kind == WIRE_EXPLAIN)
		return receive_layout(caller, ret);
	return ret->call.n_parts == 0 || receive_parts(caller, ret);
}

static void drop(struct request *request)
{
	if (request->fd >= 0)
		close(request->fd);
	for (uint32_t i = 0; request->parts && i < request->call.n_parts; i++)
		if (request->parts[i].fd >= 0)
			close(request->parts[i].fd);
	free(request->parts);
	free(request->layout);
}

static void describe(const struct engine_memory *memory, struct wire_answer *ret)
{
	ret->base = memory->base;
	ret->address = memory->address;
	memcpy(ret->memory, memory->memory, sizeof ret->memory);
	ret->has_backing = memory->backing != NULL;
	ret->is_loose = atomic_load(&memory->is_loose);
	if (memory->chunks && memory->chunks->n > 0) {
		ret->n_chunks = memory->chunks->n;
		ret->chunk = memory->chunks->by_place[0].size;
	}
}

static struct engine_handle handle_of(const struct caller *caller, const struct request *request)
{
	const struct wire_call *call = &request->call;

	return (struct engine_handle){
		.kind = call->region_kind,
		.fd = request->fd,
		.offset = call->offset,
		.size = call->size,
		.writable = call->writable,
		.is_peer = call->is_peer,
		.is_untrusted = call->is_untrusted,
		.handle = { .data = (const void *)call->handle, .len = call->handle_len },
		.allocation = call->allocation,
		.parts = request->parts,
		.n_parts = call->n_parts,
		.unwanted = call->may_be_unwanted ? &caller->served->shared->unwanted[caller->number] : NULL,
	};
}

static void add(struct served *served, uint32_t number, struct engine_memory *memory)
{
	unsigned end = atomic_load(&served->memories_end);

	atomic_store(&served->memories[number], memory);
	while (end <= number && !atomic_compare_exchange_weak(&served->memories_end, &end, number + 1))
		continue;
}

static void map(struct caller *caller, const struct request *request, struct wire_answer *ret, int *ret_fd)
{
	const struct engine_handle handle = handle_of(caller, request);
	struct engine *engine = caller->served->engine;
	struct engine_export made = { .fd = -1 };
	struct engine_memory *memory;
	int r = request->call.kind == WIRE_MAKE ? engine_make(engine, &handle, &memory, &made, &ret->err)
	                                        : engine_map(engine, &handle, &memory, &ret->err);

	ret->err.status = r;
	if (r < 0)
		return;
	describe(memory, ret);
	ret->handle_len = made.handle_len;
	memcpy(ret->handle, made.handle, sizeof ret->handle);
	*ret_fd = made.fd;
	add(caller->served, request->call.memory, memory);
}

static void settle(struct caller *caller, const struct request *request, struct wire_answer *ret)
{
	const struct engine_handle handle = handle_of(caller, request);
	struct engine_memory *memory = served_memory(caller->served, request->call.memory);

	ret->err.status = engine_settle(caller->served->engine, memory, handle.unwanted, &ret->err);
	describe(memory, ret);
}

static void find_link(struct served *served, const struct wire_call *call, struct wire_answer *ret)
{
	char uuid[ENGINE_HANDLE_BYTES];

	snprintf(uuid, sizeof uuid, "%.*s", (int)sizeof uuid - 1, (const char *)call->handle);
	engine_link(served->engine, uuid, &ret->link);
}

static void unmap_step(struct served *served, uint32_t number, struct wire_answer *ret)
{
	atomic_load(&served->ended);
	ret->is_last = engine_unmap_step(served->engine, served_memory(served, number));
	if (ret->is_last)
		atomic_store(&served->memories[number], NULL);
}

static void explain(struct served *served, const struct request *request, struct wire_answer *ret,
                    struct engine_explanation *ret_explanation)
{
	struct engine *engine = served->engine;
	struct engine_plan *plan =
	    plan_cache_make(engine->plans, &request->layout->transform, request->layout->places);

	memset(ret_explanation, 0, sizeof *ret_explanation);
	ret->err.status = plan ? engine_explain(engine, plan, ret_explanation, &ret->err)
	                       : error_set(&ret->err, STATUS_NO_MEMORY, "no memory for a plan");
	engine_plan_unref(plan);
}

static void *take_calls(void *arg)
{
	struct engine_explanation explanation;
	struct caller *caller = arg;
	struct request request;

	pthread_setname_np(pthread_self(), "engine-calls");
	while (receive(caller, &request)) {
		struct wire_answer result = { .err = { .status = 0 } };
		int fd = -1;

		if (request.call.memory >= SERVED_MEMORIES)
			error_set(&result.err, STATUS_QUOTA, "the engine has too many memories");
		else if (request.call.kind == WIRE_UNMAP_STEP)
			unmap_step(caller->served, request.call.memory, &result);
		else if (request.call.kind == WIRE_SETTLE)
			settle(caller, &request, &result);
		else if (request.call.kind == WIRE_LINK)
			find_link(caller->served, &request.call, &result);
		else if (request.call.kind == WIRE_EXPLAIN)
			explain(caller->served, &request, &result, &explanation);
		else
			map(caller, &request, &result, &fd);
		result.has_fd = fd >= 0;
		socket_send(caller->socket, &result, sizeof result, &fd, fd >= 0);
		if (request.call.kind == WIRE_EXPLAIN)
			socket_send(caller->socket, &explanation, sizeof explanation, NULL, 0);
		if (fd >= 0)
			close(fd);
		drop(&request);
	}
	close(caller->socket);
	free(caller);
	return NULL;
}
