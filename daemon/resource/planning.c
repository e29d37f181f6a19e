/* SPDX-License-Identifier: Apache-2.0 */
/* A session has one planning for messages and one for the entries of its ring: the request of one kind may
 * wait while one of the other kind is handled. While the chore is under way, the planning belongs to it. */
#include "planning.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/session.h"
#include "daemon/server.h"
#include "kernels/elsewhere.h"
#include "proto/overlap.h"

#define BUCKETS 64

/* One handling of a request notes so many plans at most, because to note one takes a few microseconds. */
#define MOST_NOTED 256

/* The request needs this plan. */
struct want {
	LIST_ENTRY(want) bucket;
	STAILQ_ENTRY(want) entry;
	struct engine *engine;
	struct transform_spec spec;
	struct plan_places places;
	struct engine_plan *plan; /* NULL until it is prepared, or if it was refused for this reason: */
	struct error err;
	uint64_t
	    steps; /* The search for an overlap took so many off the loop, which count for the request. */
	struct plan_key key;
};

/* This is what the request asks to be explained, and the answer. */
struct explaining {
	struct engine *engine; /* NULL: the engine is not here */
	const char *name;
	struct split split;
	struct engine_plan *plan[SPLIT_MAX_PARTS]; /* references */
	uint32_t n;
	uint32_t largest;
	uint32_t next;  /* the next one to be explained; n: all have been */
	uint64_t steps; /* as in struct want */
	struct error err;
	struct engine_explanation answer;
	uint64_t bytes, n_subregions, predicted_ns; /* sums over those that have been explained */
};

struct planning {
	struct chore chore;
	struct session *session;
	uint64_t request; /* It is the session->asking of the request. */
	bool is_under_way;
	atomic_bool unwanted;
	struct charge charge;
	LIST_HEAD(, want) buckets[BUCKETS];
	STAILQ_HEAD(, want) wants;
	struct want *next;             /* This is the next one to be made. It is NULL when all are made. */
	uint32_t noted;                /* So many are to be made, from next on. */
	struct explaining *explaining; /* NULL if nothing is to be explained */
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

/* Returns the request's own planning, charged for so many more bytes; or NULL with err. */
static struct planning *planning_for(struct session *session, uint64_t bytes, struct error *err)
{
	struct planning *planning = *slot_of(session) ?: planning_new(session);

	if (!planning) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
		return NULL;
	}
	if (bytes > 0 && charge_take(&planning->charge, &session->server->accounts, session->account,
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

/* One plan is part of what a connection costs, so that no limit keeps a request that needs one from running.
 */
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
	uint64_t *taken_ns = &session->server->planned_ns, start;
	int r;

	if (*taken_ns >= PLANNING_LOOP_NS)
		return add_want(session, engine, spec, places, key, err);
	start = uv_hrtime();
	r = engine_make_plan(engine, key, spec, places, ret, err);
	*taken_ns += uv_hrtime() - start;
	return r;
}

/* Takes a plan that the request has noted; returns 0, PLANNING_LATER, or why it was refused. */
static int take_want(const struct planning *planning, const struct want *want, struct engine_plan **ret,
                     struct error *err)
{
	if (planning->next) /* The plan was noted in this handling, or is behind one that was. */
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
	struct engine *engine = device_engine(&session->server->devices, device);
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
	chores_add(&session->server->chores, session->account, &planning->chore);
}

static void let_go(struct planning **slot)
{
	if (*slot && (*slot)->is_under_way)
		atomic_store(&(*slot)->unwanted, true); /* on_made frees it. */
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
