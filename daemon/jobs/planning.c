/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares plans for requests, off the loop where that takes long, and keeps the plans that connections have
 * prepared. */
#include "planning.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/elsewhere.h"
#include "kernels/transform/request.h"
#include "proto/overlap.h"

/* ==== Planning ======================================================================================= */

/* A session has two slots for what a request has noted (struct planning): one for messages and one for
 * entries of its ring, because a request of one kind may wait while one of the other kind is handled. The
 * lowest bit of session->asking selects the slot. While a chore is under way, only the chore uses its struct
 * planning. */

#define BUCKETS 64

/* Maximum number of plans noted each time a request is handled. Noting one takes a few microseconds. */
#define MOST_NOTED 256

/* A plan that a request has noted. */
struct want {
	LIST_ENTRY(want) bucket;
	STAILQ_ENTRY(want) entry;
	struct engine *engine;
	struct transform_spec spec;
	struct plan_places places;
	struct engine_plan *plan; /* NULL: not prepared yet, or refused because of err */
	struct error err;
	/* Number of steps that the search for overlaps took on the chore's thread. take_want adds them to the
	 * steps of the request (overlap_count_steps). */
	uint64_t steps;
	struct plan_key key;
};

/* A question that a request has noted (struct planning_question) and its answer. */
struct explaining {
	struct engine *engine;                     /* NULL: this service does not have the engine */
	const char *name;                          /* name of the engine; used only if engine is NULL */
	struct split split;                        /* used only if engine is NULL */
	struct engine_plan *plan[SPLIT_MAX_PARTS]; /* each is a reference */
	uint32_t n;                                /* number of plans or parts */
	uint32_t largest;                          /* index of the largest plan or part */
	/* Index of the next plan or part to be explained. n: all have been, or one has failed (err). */
	uint32_t next;
	uint64_t steps; /* steps of searches for overlaps, as in struct want */
	struct error err;
	struct engine_explanation answer;
	uint64_t bytes, n_subregions, predicted_ns; /* sums over the parts explained so far */
};

struct planning {
	struct chore chore;
	struct session *session;
	uint64_t request;     /* session->asking of the request that has noted this */
	bool is_under_way;    /* the chore is queued or under way */
	atomic_bool unwanted; /* set by the loop when nobody waits; the chore then stops */
	struct charge charge;
	LIST_HEAD(, want) buckets[BUCKETS]; /* wants by the hash of their keys */
	STAILQ_HEAD(, want) wants;          /* in the order in which they were noted */
	struct want *next;                  /* next one to be prepared; NULL: all have been */
	uint32_t noted;                     /* number of wants to be prepared, from next on */
	struct explaining *explaining;      /* NULL: nothing is to be explained */
};

static bool make(struct chore *chore);
static void on_made(struct chore *chore);

/* ---- What a request has noted --------------------------------------------------------------------- */

static struct planning **slot_of(struct session *session)
{
	return &session->planning[session->asking & 1];
}

static void explaining_free(struct explaining *explaining)
{
	for (uint32_t i = 0; explaining && i < explaining->n; i++)
		engine_plan_unref(explaining->plan[i]);
	free(explaining);
}

static void planning_free(struct planning *planning)
{
	struct want *want;

	while ((want = STAILQ_FIRST(&planning->wants))) {
		STAILQ_REMOVE_HEAD(&planning->wants, entry);
		engine_plan_unref(want->plan);
		free(want);
	}
	explaining_free(planning->explaining);
	charge_release(&planning->charge);
	free(planning);
}

static struct planning *planning_new(struct session *session)
{
	struct planning *planning = calloc(1, sizeof *planning);

	if (!planning)
		return NULL;
	planning->session = session;
	planning->request = session->asking;
	planning->chore = (struct chore){ .step = make, .on_done = on_made };
	STAILQ_INIT(&planning->wants);
	*slot_of(session) = planning;
	return planning;
}

/* Returns the planning of the request session->asking, after charging it for `bytes` more, or NULL with *err
 * set. */
static struct planning *planning_for(struct session *session, uint64_t bytes, struct error *err)
{
	struct planning *planning = *slot_of(session) ?: planning_new(session);

	if (!planning) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
		return NULL;
	}
	if (bytes > 0 && charge_take(&planning->charge, &session->service->accounts, session->account,
	                             CHARGE_LIST_BYTES, bytes, err) < 0)
		return NULL;
	return planning;
}

static struct want *find_want(const struct planning *planning, const struct engine *engine,
                              const struct plan_key *key)
{
	struct want *want;

	LIST_FOREACH(want, &planning->buckets[key->hash % BUCKETS], bucket)
		if (want->engine == engine && plan_key_is_same(&want->key, key))
			return want;
	return NULL;
}

static bool is_first(struct session *session)
{
	const struct planning *planning = *slot_of(session);

	return !planning || STAILQ_EMPTY(&planning->wants);
}

/* Notes a plan. A request's first plan is not charged: it is part of what a connection costs, so that no
 * limit keeps a request that needs one plan from running. Returns PLANNING_LATER, QUOTA or NO_MEMORY. */
static int add_want(struct session *session, struct engine *engine, const struct transform_spec *spec,
                    struct plan_places places, const struct plan_key *key, struct error *err)
{
	const size_t key_bytes = key->n * sizeof key->word[0];
	const size_t bytes = offsetof(struct want, key.word) + key_bytes;
	struct planning *planning = planning_for(session, is_first(session) ? 0 : bytes, err);
	struct want *want = planning ? malloc(bytes) : NULL;

	if (!want)
		return planning ? error_set(err, STATUS_NO_MEMORY, "no memory for a plan") : err->status;
	want->engine = engine;
	want->spec = *spec;
	want->places = places;
	want->plan = NULL;
	want->steps = 0;
	memcpy(&want->key, key, offsetof(struct plan_key, word) + key_bytes);
	LIST_INSERT_HEAD(&planning->buckets[key->hash % BUCKETS], want, bucket);
	STAILQ_INSERT_TAIL(&planning->wants, want, entry);
	if (!planning->next)
		planning->next = want;
	planning->noted++;
	return err->status = PLANNING_LATER;
}

/* ---- Getting plans -------------------------------------------------------------------------------- */

static int make_plan(struct session *session, struct engine *engine, const struct transform_spec *spec,
                     struct plan_places places, struct plan_key *key, struct engine_plan **ret,
                     struct error *err)
{
	uint64_t *taken_ns = &session->service->planned_ns, start;
	int r;

	if (*taken_ns >= PLANNING_LOOP_NS)
		return add_want(session, engine, spec, places, key, err);
	start = uv_hrtime();
	r = engine_make_plan(engine, key, spec, places, ret, err);
	*taken_ns += uv_hrtime() - start;
	return r;
}

/* Takes a plan that the request has noted, with a reference for the caller. Returns 0, PLANNING_LATER, or the
 * reason why the plan was refused. */
static int take_want(const struct planning *planning, const struct want *want, struct engine_plan **ret,
                     struct error *err)
{
	/* Some plans of the request have yet to be prepared, so it is handled again anyway. */
	if (planning->next)
		return err->status = PLANNING_LATER;
	overlap_count_steps(want->steps);
	if (!want->plan) {
		*err = want->err;
		return err->status;
	}
	engine_plan_ref(want->plan);
	*ret = want->plan;
	return 0;
}

int planning_get(struct session *session, uint32_t device, const struct transform_spec *spec,
                 struct plan_places places, struct engine_plan **ret, struct error *err)
{
	struct engine *engine = device_engine(&session->service->devices, device);
	const struct planning *planning = *slot_of(session);
	struct plan_key key;

	places = engine_places(engine, places);
	plan_key_init(&key, spec, places);
	if (planning) {
		const struct want *want;

		if (planning->is_under_way || planning->noted >= MOST_NOTED)
			return err->status = PLANNING_LATER;
		engine_hash_key(engine, &key);
		want = find_want(planning, engine, &key);
		if (want)
			return take_want(planning, want, ret, err);
	}
	*ret = engine_find_plan(engine, &key);
	return *ret ? 0 : make_plan(session, engine, spec, places, &key, ret, err);
}

/* ---- Explanations --------------------------------------------------------------------------------- */

static struct explaining *explaining_new(const struct planning_question *question)
{
	struct explaining *explaining = calloc(1, sizeof *explaining);

	if (!explaining)
		return NULL;
	explaining->engine = question->engine;
	explaining->name = question->name;
	explaining->n = question->n;
	explaining->largest = question->largest;
	if (question->split)
		explaining->split = *question->split;
	for (uint32_t i = 0; question->plans && i < question->n; i++) {
		engine_plan_ref(question->plans[i]);
		explaining->plan[i] = question->plans[i];
	}
	return explaining;
}

int planning_explain(struct session *session, const struct planning_question *question,
                     const struct engine_explanation **ret, struct error *err)
{
	struct planning *planning = *slot_of(session);

	if (planning && planning->is_under_way)
		return err->status = PLANNING_LATER;
	if (planning && planning->explaining) {
		overlap_count_steps(planning->explaining->steps);
		*err = planning->explaining->err;
		*ret = &planning->explaining->answer;
		return err->status;
	}
	planning = planning_for(session, question->n > 1 ? sizeof *planning->explaining : 0, err);
	if (!planning)
		return err->status;
	planning->explaining = explaining_new(question);
	if (!planning->explaining)
		return error_set(err, STATUS_NO_MEMORY, "no memory for an explanation");
	return err->status = PLANNING_LATER;
}

/* ---- Off the loop --------------------------------------------------------------------------------- */

static struct planning *planning_of(struct chore *chore)
{
	return (struct planning *)((char *)chore - offsetof(struct planning, chore));
}

static void make_want(struct want *want)
{
	const uint64_t steps = overlap_steps();

	if (engine_make_plan(want->engine, &want->key, &want->spec, want->places, &want->plan, &want->err) <
	    0)
		want->plan = NULL;
	want->steps = overlap_steps() - steps;
}

static int explain_elsewhere(const struct explaining *explaining, struct engine_explanation *ret,
                             struct error *err)
{
	struct transform transform;
	struct split_part part;

	split_get(&explaining->split, (int)explaining->next, &part);
	if (transform_init(&transform, &part.spec, err) < 0)
		return err->status;
	explanation_elsewhere(ret, explaining->name, &transform, (uint64_t)part.dst_offset,
	                      (uint64_t)part.src_offset);
	return 0;
}

static void explain_next(struct explaining *explaining)
{
	struct engine_explanation *answer = &explaining->answer, one;
	const uint64_t steps = overlap_steps();
	int r = explaining->engine ? engine_explain(explaining->engine, explaining->plan[explaining->next],
	                                            &one, &explaining->err)
	                           : explain_elsewhere(explaining, &one, &explaining->err);

	explaining->steps += overlap_steps() - steps;
	if (r < 0) {
		explaining->next = explaining->n;
		return;
	}
	explaining->bytes += one.bytes;
	explaining->n_subregions += one.n_subregions;
	explaining->predicted_ns += one.predicted_ns;
	if (explaining->next == explaining->largest)
		*answer = one;
	if (++explaining->next < explaining->n || explaining->n == 1)
		return;
	answer->bytes = explaining->bytes;
	answer->n_subregions = explaining->n_subregions;
	answer->predicted_ns = explaining->predicted_ns;
}

static bool has_explained(const struct planning *planning)
{
	return !planning->explaining || planning->explaining->next == planning->explaining->n;
}

static bool make(struct chore *chore)
{
	struct planning *planning = planning_of(chore);
	struct want *want = planning->next;

	if (atomic_load(&planning->unwanted))
		return true;
	if (want) {
		make_want(want);
		planning->next = STAILQ_NEXT(want, entry);
	} else if (!has_explained(planning)) {
		explain_next(planning->explaining);
	}
	return !planning->next && has_explained(planning);
}

static void on_made(struct chore *chore)
{
	struct planning *planning = planning_of(chore);
	struct session *session = planning->session;

	planning->is_under_way = false;
	planning->noted = 0;
	session->mappings--;
	if (atomic_load(&planning->unwanted))
		planning_free(planning);
	else
		session_on_memory(session);
	session_settle(session);
}

/* ---- The request ---------------------------------------------------------------------------------- */

void planning_forget_other(struct session *session)
{
	if ((*slot_of(session))->request != session->asking)
		planning_forget(session);
}

void planning_start(struct session *session)
{
	struct planning *planning = *slot_of(session);

	if (!planning || planning->is_under_way)
		return;
	if (!planning->next && has_explained(planning))
		return;
	planning->is_under_way = true;
	session->mappings++;
	chores_add(&session->service->chores, session->account, &planning->chore);
}

static void let_go(struct planning **slot)
{
	if (*slot && (*slot)->is_under_way)
		atomic_store(&(*slot)->unwanted, true); /* on_made frees it */
	else if (*slot)
		planning_free(*slot);
	*slot = NULL;
}

void planning_forget(struct session *session)
{
	let_go(slot_of(session));
}

void planning_give_up(struct session *session)
{
	let_go(&session->planning[0]);
	let_go(&session->planning[1]);
}

bool planning_is_under_way(const struct session *session)
{
	const struct planning *const *slots = (const struct planning *const *)session->planning;

	return (slots[0] && slots[0]->is_under_way) || (slots[1] && slots[1]->is_under_way);
}

/* ==== Prepared plans ================================================================================= */

/* Each prepared plan keeps the engine's plans for the kinds of places that its runs have used last. */

/* Plans are kept for two kinds of places: a pair that is aligned, and one that is not. Plans for other places
 * come from the cache. */
#define KEPT_PLANS 2

/* One of the transforms that a run of a prepared plan consists of. */
struct prepared_part {
	struct transform_spec spec;
	int64_t dst_offset; /* bytes from the places of the run */
	int64_t src_offset;
	struct engine_plan *kept[KEPT_PLANS]; /* NULL: none */
	uint32_t oldest;                      /* index in kept of the plan to be replaced next */
};

struct prepared {
	uint64_t id;
	struct tensor_layout dst, src; /* layouts of all that a run touches */
	struct tensor_extent dst_extent, src_extent;
	double number[ROLE_COUNT];  /* values of the operands that are numbers */
	bool is_tensor[ROLE_COUNT]; /* operands that are tensors, for which each run gives places */
	struct charge charge;
	struct charge bytes; /* CHARGE_PLAN_BYTES: for the struct and the plans that it keeps */
	uint32_t largest;    /* index of the largest part */
	uint32_t n;          /* number of parts */
	struct prepared_part part[];
};

/* ---- Making and releasing ----------------------------------------------------------------------------- */

static void prepared_free(struct prepared *prepared)
{
	for (uint32_t i = 0; i < prepared->n; i++)
		for (int k = 0; k < KEPT_PLANS; k++)
			engine_plan_unref(prepared->part[i].kept[k]);
	charge_release(&prepared->charge);
	charge_release(&prepared->bytes);
	free(prepared);
}

/* Keeps a plan for later runs, and takes over the reference to it. The plan for a second kind of places is
 * charged; if the user's limit does not allow that, it replaces the first plan, which takes as many bytes. */
static void keep_plan(struct session *session, struct prepared *prepared, struct prepared_part *part,
                      struct engine_plan *entry)
{
	struct engine_plan **kept = &part->kept[part->oldest];
	struct error err;

	if (!*kept && charge_take(&prepared->bytes, &session->service->accounts, session->account,
	                          CHARGE_PLAN_BYTES, engine_plan_bytes(entry), &err) < 0)
		kept = &part->kept[0];
	else
		part->oldest = (part->oldest + 1) % KEPT_PLANS;
	engine_plan_unref(*kept);
	*kept = entry;
}

/* Finds the plan of the part for places like `places`. The caller gets no reference. */
static int find_plan(struct session *session, struct prepared *prepared, struct prepared_part *part,
                     uint32_t device, struct plan_places places, struct engine_plan **ret, struct error *err)
{
	struct engine *engine = device_engine(&session->service->devices, device);
	int r;

	for (int i = 0; i < KEPT_PLANS; i++)
		if (part->kept[i] && engine_plan_suits(part->kept[i], engine, places)) {
			*ret = part->kept[i];
			return 0;
		}
	r = planning_get(session, device, &part->spec, places, ret, err);
	if (r == 0)
		keep_plan(session, prepared, part, *ret);
	return r;
}

static uint64_t bytes_of_all(const struct parts *parts)
{
	uint64_t bytes = sizeof(struct prepared) + parts->n * sizeof(struct prepared_part);

	for (uint32_t i = 0; i < parts->n; i++)
		bytes += engine_plan_bytes(parts->part[i].plan);
	return bytes;
}

static int take_charges(struct session *session, const struct parts *parts, struct charge *count,
                        struct charge *bytes, struct error *err)
{
	struct accounts *accounts = &session->service->accounts;
	int r = charge_take(count, accounts, session->account, CHARGE_PLANS, parts->n, err);

	return r < 0 ? r
	             : charge_take(bytes, accounts, session->account, CHARGE_PLAN_BYTES, bytes_of_all(parts),
	                           err);
}

/* Takes over the references to the plans of all parts, which were made for aligned places. Returns NULL if
 * out of memory. */
static struct prepared *prepared_new(const struct split *split, struct parts *parts)
{
	struct prepared *prepared = calloc(1, sizeof *prepared + parts->n * sizeof(struct prepared_part));

	if (!prepared)
		return NULL;
	prepared->dst = split->dst;
	prepared->src = split->src;
	prepared->dst_extent = split->dst_extent;
	prepared->src_extent = split->src_extent;
	prepared->largest = (uint32_t)split->largest;
	prepared->n = parts->n;
	for (uint32_t i = 0; i < parts->n; i++) {
		struct prepared_part *part = &prepared->part[i];
		struct split_part one;

		split_get(split, (int)i, &one);
		part->spec = one.spec;
		part->dst_offset = one.dst_offset;
		part->src_offset = one.src_offset;
		part->kept[0] = parts->part[i].plan;
		part->oldest = 1;
	}
	parts->n = 0;
	return prepared;
}

/* Plans all parts. Their number is checked against the limit before the plans are made; take_charges charges
 * for them afterwards. */
static int plan_all(struct session *session, const struct split *split, struct parts *ret, struct error *err)
{
	struct charge count = { 0 };
	int r = charge_take(&count, &session->service->accounts, session->account, CHARGE_PLANS,
	                    (uint64_t)split->n_parts, err);

	if (r == 0)
		r = parts_plan(session, split, false, ret, err);
	charge_release(&count);
	return r;
}

static int add_prepared(struct session *session, const struct msg_transform *params,
                        const struct split *split, struct parts *parts, uint64_t *ret_id, struct error *err)
{
	struct charge count = { 0 }, bytes = { 0 };
	struct prepared *prepared = NULL;
	int r = take_charges(session, parts, &count, &bytes, err);

	if (r == 0) {
		prepared = prepared_new(split, parts);
		r = prepared ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	}
	if (r < 0) {
		charge_release(&count);
		charge_release(&bytes);
		return r;
	}
	prepared->charge = count;
	prepared->bytes = bytes;
	for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
		const struct request_operand operand = request_operand(params, role);

		prepared->number[role] = operand.number;
		prepared->is_tensor[role] = operand.is_tensor;
	}
	r = id_table_add(&session->plans, prepared, "plans", &prepared->id, err);
	if (r < 0)
		prepared_free(prepared);
	else
		*ret_id = prepared->id;
	return r;
}

int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err)
{
	struct parts parts = { 0 };
	struct split split;
	int r = request_refuse_places(params, err);

	if (r == 0)
		r = transform_split_of(params, &split, err);
	if (r == 0)
		r = plan_all(session, &split, &parts, err);
	if (r == 0)
		r = add_prepared(session, params, &split, &parts, ret_id, err);
	parts_unref(&parts);
	return r;
}

static int find_prepared(struct session *session, uint64_t id, struct prepared **ret, struct error *err)
{
	*ret = id_table_find(&session->plans, id);
	if (!*ret)
		return error_set(err, STATUS_NOT_FOUND, "plan: this connection has no plan %" PRIu64, id);
	return 0;
}

static void end_prepared(struct session *session, struct prepared *prepared)
{
	id_table_remove(&session->plans, prepared->id);
	prepared_free(prepared);
}

int prepared_release(struct session *session, uint64_t id, struct error *err)
{
	struct prepared *prepared;
	int r = find_prepared(session, id, &prepared, err);

	if (r == 0)
		end_prepared(session, prepared);
	return r;
}

void prepared_release_all(struct session *session)
{
	struct prepared *prepared;
	uint32_t cursor = 0;

	while ((prepared = id_table_next(&session->plans, &cursor)))
		end_prepared(session, prepared);
}

/* ---- Running ------------------------------------------------------------------------------------------ */

/* Sets the operands of a run: numbers are those of the prepared plan, and tensors lie where the run says. */
static int place_operands(struct session *session, const struct prepared *prepared,
                          const struct msg_plan_run *run, struct placed *ret, struct error *err)
{
	int r = 0;

	for (enum operand_role role = 0; role < ROLE_COUNT && r == 0; role++) {
		struct region_place at;

		ret->operand[role] = (struct placed_operand){ .number = prepared->number[role] };
		r = request_check_run_place(run, role, prepared->is_tensor[role], err);
		if (r == 0 && request_run_place(run, role, &at))
			r = placed_find_operand(session, role, role_run_names[role], &at, ret, err);
	}
	return r;
}

static int plan_parts(struct session *session, struct prepared *prepared, struct parts *ret,
                      struct error *err)
{
	bool is_later = false;

	ret->largest = prepared->largest;
	for (ret->n = 0; ret->n < prepared->n; ret->n++) {
		struct prepared_part *from = &prepared->part[ret->n];
		struct part *part = &ret->part[ret->n];
		const struct placed placed = placed_part(&ret->placed, from->dst_offset, from->src_offset);
		int r = find_plan(session, prepared, from, placed.device, placed_places(&placed), &part->plan,
		                  err);

		is_later |= r == PLANNING_LATER;
		if (r == 0)
			engine_plan_ref(part->plan);
		else
			part->plan = NULL;
		if (r < 0 && r != PLANNING_LATER) {
			parts_unref(ret);
			return r;
		}
		part->dst_offset = from->dst_offset;
		part->src_offset = from->src_offset;
	}
	if (!is_later)
		return 0;
	parts_unref(ret);
	return err->status = PLANNING_LATER;
}

int prepared_plan(struct session *session, const struct msg_plan_run *run, uint32_t device,
                  struct transforms_charge *charge, struct parts *ret, struct error *err)
{
	struct transform_sides sides;
	struct prepared *prepared;
	int r = find_prepared(session, run->plan, &prepared, err);

	if (r == 0)
		r = request_check_run_places(run, err);
	if (r == 0)
		r = placed_find(session, &run->dst, "dst", &run->src, "src", &ret->placed, err);
	if (r == 0)
		r = place_operands(session, prepared, run, &ret->placed, err);
	if (r == 0)
		r = placed_settle(&ret->placed, device, err);
	if (r < 0)
		return r;
	sides = (struct transform_sides){ .dst = &prepared->dst,
		                          .src = &prepared->src,
		                          .dst_extent = prepared->dst_extent,
		                          .src_extent = prepared->src_extent };
	r = placed_check(&ret->placed, &sides, err);
	if (r == 0)
		r = parts_charge(charge, prepared->n, err);
	if (r < 0)
		return r;
	r = plan_parts(session, prepared, ret, err);
	if (r == 0)
		r = parts_check_operands(ret, &sides, err);
	if (r < 0)
		parts_discharge(charge, prepared->n, r);
	return r;
}

int prepared_plan_for(struct session *session, const struct msg_plan_run *run, struct plan_places places,
                      struct placed *placed, struct engine_plan **ret_plan, struct error *err)
{
	struct prepared *prepared;
	struct engine_plan *plan; /* the reference is the prepared plan's */
	int r = find_prepared(session, run->plan, &prepared, err);

	if (r == 0 && prepared->n > 1)
		r = error_set(err, STATUS_UNSUPPORTED,
		              "plan: it has %" PRIu32
		              " parts, because the last block of a split is incomplete; a table takes plans "
		              "of one part",
		              prepared->n);
	if (r == 0 && prepared->part[0].spec.conversion.amax.is_given)
		r = error_set(err, STATUS_UNSUPPORTED,
		              "dst_table: the plan has amax, and all its runs would write the same scales");
	if (r == 0)
		r = place_operands(session, prepared, run, placed, err);
	if (r == 0)
		r = placed_settle(placed, placed->device, err);
	if (r == 0)
		r = find_plan(session, prepared, &prepared->part[0], placed->device, places, &plan, err);
	if (r == 0)
		r = placed_check_operands(placed, NULL, &engine_plan_transform(plan)->conversion, err);
	if (r < 0)
		return r;
	engine_plan_ref(plan);
	*ret_plan = plan;
	return 0;
}
