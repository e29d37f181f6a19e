/* SPDX-License-Identifier: Apache-2.0 */
/* Launches requests into the program's own streams, and keeps what their engines count for a session. */
#include "session.h"

#include <stdlib.h>

/* The counts of a session at one engine. Launches and awaited requests are counted separately, so that the
 * counts of an awaited request do not include launches that are still under way. They are freed with the
 * session, although the device may still add to them. */
struct device_counts {
	struct engine *engine;
	struct local_counters launched, awaited;
	struct device_counts *next;
};

#ifdef HAVE_CUDA
static int engine_of(void *stream, struct engine **ret, struct error *err)
{
	return engine_cuda_of_stream(ret, stream, err);
}

bool local_is_on_device(uint64_t address)
{
	return engine_cuda_has(address);
}

void *local_context(void)
{
	return engine_cuda_context();
}

void local_enter(void *context)
{
	engine_cuda_enter(context);
}

void local_device_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps)
{
	engine_cuda_add_stats(plans, maps);
}
#else
static int engine_of(void *stream, struct engine **ret, struct error *err)
{
	(void)stream;
	(void)ret;
	return error_set(err, STATUS_UNSUPPORTED, "libtma-local was built without its engine for GPUs");
}

bool local_is_on_device(uint64_t address)
{
	(void)address;
	return false;
}

void *local_context(void)
{
	return NULL;
}

void local_enter(void *context)
{
	(void)context;
}

void local_device_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps)
{
	(void)plans;
	(void)maps;
}
#endif

static struct device_counts *find(const struct local_session *session, const struct engine *engine)
{
	for (struct device_counts *counts = session->counts; counts; counts = counts->next)
		if (counts->engine == engine)
			return counts;
	return NULL;
}

static void counts_free(struct device_counts *counts)
{
	if (counts->launched.address)
		engine_counts_free(counts->engine, counts->launched.address);
	if (counts->awaited.address)
		engine_counts_free(counts->engine, counts->awaited.address);
	free(counts);
}

static int counts_new(struct engine *engine, struct device_counts **ret, struct error *err)
{
	struct device_counts *counts = calloc(1, sizeof *counts);
	int r;

	if (!counts)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	counts->engine = engine;
	r = engine_counts_new(engine, &counts->launched.address, &counts->launched.seen, err);
	if (r == 0)
		r = engine_counts_new(engine, &counts->awaited.address, &counts->awaited.seen, err);
	if (r < 0)
		counts_free(counts);
	else
		*ret = counts;
	return r;
}

/* Sets *ret to the session's counts at the engine, and creates them at its first use. */
static int counts_of(struct local_session *session, struct engine *engine, struct device_counts **ret,
                     struct error *err)
{
	int r;

	*ret = find(session, engine);
	if (*ret)
		return 0;
	r = counts_new(engine, ret, err);
	if (r < 0)
		return r;
	(*ret)->next = session->counts;
	session->counts = *ret;
	return 0;
}

void local_counts_free(struct local_session *session)
{
	struct device_counts *counts;

	while ((counts = session->counts)) {
		session->counts = counts->next;
		counts_free(counts);
	}
}

static int begin(struct local_session *session, void *stream, bool is_awaited, struct error *err)
{
	struct device_counts *counts = NULL;
	struct engine *engine = NULL;
	int r = engine_of(stream, &engine, err);

	if (r == 0)
		r = counts_of(session, engine, &counts, err);
	if (r < 0)
		return r;
	session->stream.device = engine;
	session->stream.cuda_stream = stream;
	session->stream.counters = is_awaited ? &counts->awaited : &counts->launched;
	session->stream.is_awaited = is_awaited;
	return 0;
}

int local_stream_begin(struct local_session *session, void *stream, struct error *err)
{
	return begin(session, stream, false, err);
}

void local_stream_end(struct local_session *session)
{
	session->stream.device = NULL;
}

bool local_reaches(struct local_session *session, uint64_t address)
{
	struct error ignored;

	return engine_check_place(session->stream.device, address, "memory", &ignored) == 0;
}

int local_stream_counts(struct local_session *session, void *stream, struct local_counts *ret,
                        struct error *err)
{
	struct engine_counts counts = { 0 };
	int r = local_stream_begin(session, stream, err);

	if (r < 0)
		return r;
	r = local_stream_count(&session->stream, &counts, err);
	local_stream_end(session);
	if (r == 0)
		*ret = (struct local_counts){ .changed = counts.changed, .beyond = counts.beyond };
	return r;
}

/* ---- Memory of devices without a stream --------------------------------------------------------------- */

static bool is_on_device(const struct local_session *session, bool has_region, uint64_t id, uint64_t offset)
{
	struct local_region region;

	return local_is_on_device(
	    has_region && local_region_find(session, id, &region) ? region.start + offset : offset);
}

static bool is_tensor_on_device(const struct local_session *session, const struct msg_tensor *tensor)
{
	return is_on_device(session, tensor->has & F(tensor, region), tensor->region, tensor->offset);
}

bool local_needs_device(const struct local_session *session, const struct msg_tensor *tensor)
{
	return !session->stream.device && is_tensor_on_device(session, tensor);
}

int local_device_begin(struct local_session *session, bool is_needed, bool *ret_has_begun, struct error *err)
{
	int r = is_needed ? begin(session, NULL, true, err) : 0;

	*ret_has_begun = is_needed && r == 0;
	return r;
}

/* Returns the name of a tensor other than dst and src that lies in memory of a device, or NULL. */
static const char *find_operand(const struct local_session *session, const struct msg_transform *t)
{
	for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
		const struct request_operand operand = request_operand(t, role);

		if (operand.is_tensor &&
		    is_on_device(session, operand.has_region, operand.region, operand.offset))
			return role_names[role];
	}
	return NULL;
}

int local_check_operands(const struct local_session *session, const struct msg_transform *t,
                         struct error *err)
{
	const char *name =
	    session->stream.device || !transform_has_operands(t) ? NULL : find_operand(session, t);

	if (!name)
		return 0;
	return error_set(err, STATUS_UNSUPPORTED,
	                 "%s: it is memory of a device, but dst and src are the host's; copy it to the host",
	                 name);
}
