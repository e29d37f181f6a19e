/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers and scatters. Fields are checked in the order in which the service checks them: first entries and
 * layers, then the transform and its places, then everything in memory. */
#include "session.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "staging.h"

/* State of a request with a list of blocks. */
struct listing {
	struct engine_blocks blocks;
	struct request_places places;
	struct msg_transform block;                /* the transform that moves one block */
	struct local_table *dst_table, *src_table; /* NULL: the side has no table */
	struct engine_plan *plan;
	int64_t *words;  /* copies of the lists in the message; owned */
	int64_t *sorted; /* scratch space within words that blocks_check needs; NULL: it needs none */
	uint64_t n;      /* number of entries; 0: there is nothing to move */
	struct local_job job;
};

static void use_table(struct local_table *table, struct msg_tensor *tensor, struct engine_blocks_side *side)
{
	if (!table)
		return;
	local_table_place(table, tensor);
	blocks_use_table(side, &table->layers);
}

/* Finds the tables of both sides, and the number of layers. */
static int set_layers(struct local_session *session, struct listing *listing, const struct msg_blocks *p,
                      struct error *err)
{
	const struct request_layers sides[2] = { REQUEST_LAYERS(p, dst), REQUEST_LAYERS(p, src) };
	struct engine_blocks *blocks = &listing->blocks;
	int r = local_table_get(session, &sides[0], &listing->dst_table, err);

	if (r == 0)
		r = local_table_get(session, &sides[1], &listing->src_table, err);
	if (r == 0)
		r = request_count_layers(
		    p, sides,
		    (const uint32_t[2]){ listing->dst_table ? listing->dst_table->layers.n : 0,
		                         listing->src_table ? listing->src_table->layers.n : 0 },
		    &blocks->layers, err);
	if (r == 0 && listing->dst_table)
		r = layer_table_check_writable(&listing->dst_table->layers, request_table_name(&sides[0]),
		                               err);
	return r;
}

static int set_lists(struct local_session *session, struct listing *listing, const struct msg_blocks *p,
                     struct error *err)
{
	struct engine_blocks *blocks = &listing->blocks;
	int r = request_check_entries(p, blocks, err);

	if (r == 0)
		r = set_layers(session, listing, p, err);
	if (r < 0)
		return r;
	blocks->dst.layer_step = p->dst_layer_step;
	blocks->src.layer_step = p->src_layer_step;
	listing->n = blocks->n;
	listing->words = malloc(request_list_bytes(p) + sizeof *listing->words);
	if (!listing->words)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
	listing->sorted = request_copy_lists(p, listing->words, blocks);
	listing->block = request_block(p);
	use_table(listing->dst_table, &listing->block.dst, &blocks->dst);
	use_table(listing->src_table, &listing->block.src, &blocks->src);
	return 0;
}

/* Returns whether the side lies in regions, which limit how many blocks it has. */
static bool has_an_end(const struct local_table *table, const struct msg_tensor *tensor)
{
	return table ? !table->has_addresses : (tensor->has & F(tensor, region)) != 0;
}

/* Finds the places of all tensors, and prepares a plan for one block that suits every block. */
static int plan(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                struct engine *engine, struct error *err)
{
	struct request_places *places = &listing->places;
	struct engine_blocks *blocks = &listing->blocks;
	struct transform_spec spec;
	uint64_t bits;
	int r;

	r = request_block_spec(&listing->block, &spec, err);
	if (r == 0)
		r = local_places(session, &listing->block, places, err);
	if (r == 0)
		r = request_check_ends(p, blocks, has_an_end(listing->dst_table, &listing->block.dst),
		                       has_an_end(listing->src_table, &listing->block.src), err);
	if (r == 0)
		r = request_set_steps(p, &spec, &places->dst, &places->src, blocks, err);
	if (r < 0)
		return r;
	bits = blocks_bits(blocks, local_address(&places->dst), local_address(&places->src));
	return engine_prepare(engine, &spec, plan_places_of_many(bits), &listing->plan, err);
}

static int check_short_list(struct local_session *session, const struct engine_blocks *blocks,
                            struct error *err)
{
	if (!session->seen) {
		session->seen = calloc(1, sizeof *session->seen);
		if (!session->seen)
			return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
		if (getrandom(&session->seen->seed, sizeof session->seen->seed, 0) < 0)
			session->seen->seed = (uint64_t)(uintptr_t)session;
	}
	return blocks_check_list(blocks, session->seen, err);
}

static int check_long_list(const struct engine_blocks *blocks, struct error *err)
{
	const size_t n_slots = blocks_dst_is_indexed(blocks) ? blocks_slots(blocks->n) : 0;
	uint32_t *slot = malloc((n_slots + 1) * sizeof *slot);
	uint64_t seed;
	int r;

	if (!slot)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
	if (getrandom(&seed, sizeof seed, 0) < 0)
		seed = (uint64_t)(uintptr_t)slot;
	r = blocks_check_entries(blocks, seed, slot, n_slots, err);
	free(slot);
	return r;
}

/* Checks the entries of a list in host memory. */
static int check_list(struct local_session *session, const struct engine_blocks *blocks, struct error *err)
{
	if (blocks->n > BLOCKS_ENTRIES_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "index: %" PRIu64 " entries, at most %d",
		                 blocks->n, BLOCKS_ENTRIES_MOST);
	return blocks->n <= BLOCKS_LIST_MOST ? check_short_list(session, blocks, err)
	                                     : check_long_list(blocks, err);
}

/* Returns 1 if the list has to be read here because the device does not reach it, 0 if not, or a negative
 * status. */
static int is_read_here(struct local_session *session, const struct tensor_place *at, struct error *err)
{
	enum engine_home home = ENGINE_HOME_DEVICE;
	int r = 0;

	if (session->stream.device)
		r = engine_find_home(session->stream.device, local_address(at), &home, err);
	return r < 0 ? r : home == ENGINE_HOME_HOST;
}

/* Finds and checks a list that lies in a region. A list that the device does not reach is read and checked
 * before the call returns, as if it had come in the message. */
static int place_list(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                      struct engine *engine, struct error *err)
{
	struct engine_blocks *blocks = &listing->blocks;
	struct tensor_place at;
	int r =
	    local_place(session, true, p->index_at.region, p->index_at.offset, false, "index_at", &at, err);

	if (r == 0)
		r = blocks_check_index(blocks, engine_plan_transform(listing->plan), &listing->places.dst,
		                       &at, err);
	if (r < 0 || blocks->n == 0) /* An empty list needs no memory. */
		return r;
	r = is_read_here(session, &at, err);
	if (r < 0)
		return r;
	if (r > 0 && session->only_checks) /* The list need not have been written yet. */
		return 0;
	if (r > 0) {
		blocks->index = (const void *)(uintptr_t)local_address(&at);
		return check_list(session, blocks, err);
	}
	r = blocks_check_unread(blocks, err);
	if (r < 0)
		return r;
	blocks->index_memory = engine->own;
	blocks->index_offset = local_offset(&at, engine->own);
	return local_check_reach(session, &at, "index_at", err);
}

static bool has_tables(const struct listing *listing)
{
	return listing->dst_table || listing->src_table;
}

/* Checks that the device reaches the table's entries. A table in ordinary host memory is accepted in requests
 * that wait, because it has a copy on the device then. */
static int check_table(struct local_session *session, struct local_table *table,
                       const struct request_layers *layers, struct error *err)
{
	int r = 0;

	if (table && session->stream.device && session->stream.is_awaited)
		r = local_table_is_on_host(session, table, err);
	if (r != 0 || !table)
		return r < 0 ? r : 0;
	return local_table_check_reach(session, table, request_table_name(layers), err);
}

static int check_tables(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                        struct error *err)
{
	const struct request_layers dst = REQUEST_LAYERS(p, dst), src = REQUEST_LAYERS(p, src);
	int r = has_tables(listing) && !session->stream.is_awaited
	            ? local_check_all_reach(session, &listing->block, &listing->places, err)
	            : 0;

	if (r == 0)
		r = check_table(session, listing->dst_table, &dst, err);
	return r < 0 ? r : check_table(session, listing->src_table, &src, err);
}

static int check_memory(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                        struct engine *engine, struct error *err)
{
	const struct request_places *places = &listing->places;
	const struct transform *t = engine_plan_transform(listing->plan);
	struct engine_blocks *blocks = &listing->blocks;
	int r = request_check_operands(places, NULL, &t->conversion, err);

	if (r == 0)
		r = check_tables(session, p, listing, err);
	if (r == 0)
		r = blocks_check(blocks, t, &places->dst, &places->src, listing->sorted, err);
	if (r < 0)
		return r;
	return blocks->index ? check_list(session, blocks, err)
	                     : place_list(session, p, listing, engine, err);
}

/* Replaces the list by a single entry of -1, which the engine skips. An engine takes no empty list, but only
 * the engine can tell the family, which the reply needs. */
static void move_nothing(struct listing *listing)
{
	static const int64_t nothing = -1;

	listing->blocks.n = listing->blocks.layers = 1;
	listing->blocks.pairs = false;
	listing->blocks.index_bytes = sizeof nothing;
	listing->blocks.index = &nothing;
	listing->n = 0;
}

/* Runs the list. All layers are in the address space of this process, so the engine gets only the distances
 * between them, even if they are separate allocations. */
static int run(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
               struct engine *engine, struct error *err)
{
	struct engine_job *job = &listing->job.job;
	int r;

	listing->blocks.dst.table = listing->blocks.src.table = NULL;
	*job = (struct engine_job){ .move = local_operands(&listing->block, &listing->places, engine->own),
		                    .blocks = &listing->blocks,
		                    .share = local_share(&p->order) };
	job->move.transform = engine_plan_transform(listing->plan);
	job->move.plan = listing->plan;
	job->move.dst = job->move.src = engine->own;
	job->move.dst_offset = local_offset(&listing->places.dst, engine->own);
	job->move.src_offset = local_offset(&listing->places.src, engine->own);
	r = local_stream_run(&session->stream, &listing->job, err);
	if (r == STATUS_OUT_OF_RANGE)
		return request_explain_changed(&job->move.transform->conversion, job->move.changed, err);
	return r;
}

static void set_done(const struct listing *listing, struct msg_blocks_done *ret)
{
	const struct engine_blocks *blocks = &listing->blocks;
	const uint64_t passed = listing->n > 0 ? blocks->passed : 0;
	const uint64_t moved = listing->n - passed - blocks->beyond;

	*ret = (struct msg_blocks_done){ .path = bytes_of(family_names[blocks->family]),
		                         .bytes =
		                             moved * blocks->layers * listing->job.job.move.transform->bytes,
		                         .ns = listing->job.job.ns,
		                         .moved = moved,
		                         .passed = passed,
		                         .beyond = blocks->beyond };
}

static int run_here(struct local_session *session, const struct msg_blocks *p, bool scatter,
                    struct msg_blocks_done *ret, struct error *err);

/* If there are tensors that the device does not reach, runs the list with copies of those and returns 1.
 * Returns 0 if the device reaches all tensors, or a negative status. */
static int run_staged(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                      struct msg_blocks_done *ret, struct error *err)
{
	struct local_staged_blocks staged;
	int r = local_staged_blocks_init(&staged, session, p, &listing->blocks, &listing->places, err);
	const bool is_staged = r > 0;

	if (is_staged)
		r = run_here(session, &staged.changed, staged.scatter, ret, err);
	r = local_staging_end(&staged.staging, r, err);
	if (r == 0 && staged.is_list_changed) {
		ret->passed = staged.passed;
		ret->beyond = staged.beyond;
	}
	local_staged_blocks_deinit(&staged);
	return r < 0 ? r : is_staged;
}

static int run_list(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                    struct engine *engine, struct msg_blocks_done *ret, struct error *err)
{
	const bool is_nothing = listing->n == 0 || engine_plan_transform(listing->plan)->count == 0;
	int r = 0;

	if (is_nothing)
		move_nothing(listing);
	else if (session->stream.device && session->stream.is_awaited)
		r = run_staged(session, p, listing, ret, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = run(session, p, listing, engine, err);
	if (r < 0)
		return r;
	set_done(listing, ret);
	local_count_move(session, listing->blocks.family, ret->bytes, ret->ns);
	local_count_latency(session, ret->ns);
	return 0;
}

static int move_blocks(struct local_session *session, const struct msg_blocks *p, struct listing *listing,
                       struct msg_blocks_done *ret, struct error *err)
{
	struct engine *engine = local_stream_engine(&session->stream, err);
	int r = engine ? local_check_operands(session, &listing->block, err) : err->status;

	if (r == 0)
		r = plan(session, p, listing, engine, err);
	if (r == 0)
		r = check_memory(session, p, listing, engine, err);
	if (r == 0 && !session->only_checks)
		r = run_list(session, p, listing, engine, ret, err);
	engine_plan_unref(listing->plan);
	return r;
}

static void listing_deinit(struct listing *listing)
{
	local_table_put(listing->dst_table);
	local_table_put(listing->src_table);
	free(listing->words);
}

/* Runs a list on the engine that the session uses now. */
static int run_here(struct local_session *session, const struct msg_blocks *p, bool scatter,
                    struct msg_blocks_done *ret, struct error *err)
{
	struct listing listing = { .blocks.scatter = scatter };
	int r = set_lists(session, &listing, p, err);

	if (r == 0)
		r = move_blocks(session, p, &listing, ret, err);
	listing_deinit(&listing);
	return r;
}

static bool needs_device(const struct local_session *session, const struct listing *listing)
{
	return local_needs_device(session, &listing->block.dst) ||
	       local_needs_device(session, &listing->block.src);
}

/* Cancellation is disabled, because a thread that is canceled while it waits for the device would leave
 * memory of the device allocated. */
int local_blocks_run(struct local_session *session, const struct msg_blocks *p, bool scatter,
                     struct msg_blocks_done *ret, struct error *err)
{
	struct listing listing = { .blocks.scatter = scatter };
	bool is_on_device = false;
	int before, r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	r = set_lists(session, &listing, p, err);
	if (r == 0)
		r = local_device_begin(session, needs_device(session, &listing), &is_on_device, err);
	if (r == 0)
		r = move_blocks(session, p, &listing, ret, err);
	if (is_on_device)
		local_stream_end(session);
	listing_deinit(&listing);
	pthread_setcancelstate(before, NULL);
	return r;
}

int local_method_gather(struct local_session *session, const union params *params, union local_result *ret,
                        struct error *err)
{
	return local_blocks_run(session, &params->blocks, false, &ret->blocks_done, err);
}

int local_method_scatter(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err)
{
	return local_blocks_run(session, &params->blocks, true, &ret->blocks_done, err);
}
