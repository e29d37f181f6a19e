/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for streams of the program's own: the engine of the stream's context, and what it counts for the
 * session. */
#include "session.h"

#include <stdlib.h>

/* What an engine counts for a session. It is released with the session: the device may add to it until the
 * work of the session has ended, which the program waits for before it frees the memory that is moved. */
struct device_counts {
	struct engine *engine;
	uint64_t address;
	struct engine_counts seen;
	struct device_counts *next;
};

#ifdef HAVE_CUDA
static int engine_of(void *stream, struct engine **ret, struct error *err)
{
	return engine_cuda_of_stream(ret, stream, err);
}

static bool has_address(uint64_t address)
{
	return engine_cuda_has(address);
}
#else
static int engine_of(void *stream, struct engine **ret, struct error *err)
{
	(void)stream;
	(void)ret;
	return error_set(err, STATUS_UNSUPPORTED, "libtma-local was built without its engine for GPUs");
}

static bool has_address(uint64_t address)
{
	(void)address;
	return false;
}
#endif

static struct device_counts *find(const struct local_session *session, const struct engine *engine)
{
	for (struct device_counts *counts = session->counts; counts; counts = counts->next)
		if (counts->engine == engine)
			return counts;
	return NULL;
}

/* Finds what the engine counts for the session, or has it count from now on. */
static int counts_of(struct local_session *session, struct engine *engine, struct device_counts **ret,
                     struct error *err)
{
	struct device_counts *counts = find(session, engine);
	int r;

	*ret = counts;
	if (counts)
		return 0;
	counts = calloc(1, sizeof *counts);
	if (!counts)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	counts->engine = engine;
	r = engine_counts_new(engine, &counts->address, &counts->seen, err);
	if (r < 0) {
		free(counts);
		return r;
	}
	counts->next = session->counts;
	session->counts = *ret = counts;
	return 0;
}

void local_counts_free(struct local_session *session)
{
	struct device_counts *counts;

	while ((counts = session->counts)) {
		session->counts = counts->next;
		engine_counts_free(counts->engine, counts->address);
		free(counts);
	}
}

int local_stream_begin(struct local_session *session, void *stream, struct error *err)
{
	struct device_counts *counts;
	struct engine *engine = NULL;
	int r = engine_of(stream, &engine, err);

	if (r == 0)
		r = counts_of(session, engine, &counts, err);
	if (r < 0)
		return r;
	session->stream.device = engine;
	session->stream.cuda_stream = stream;
	session->stream.counts = counts->address;
	session->stream.seen = &counts->seen;
	session->stream.is_waited_for = false;
	return 0;
}

void local_stream_end(struct local_session *session)
{
	session->stream.device = NULL;
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

/* ---- Memory of devices without a stream -----------------------------------------------------------------
 */

static bool is_on_device(const struct local_session *session, const struct msg_tensor *tensor)
{
	const uint64_t id = tensor->has & F(tensor, region) ? tensor->region : 0;
	uint64_t address = tensor->offset;

	if (id > 0 && id <= session->n_regions)
		address += session->regions[id - 1].start;
	return has_address(address);
}

int local_device_begin(struct local_session *session, const struct msg_tensor *dst,
                       const struct msg_tensor *src, bool *ret_has_begun, struct error *err)
{
	int r;

	*ret_has_begun = false;
	if (session->stream.device || (!is_on_device(session, dst) && !is_on_device(session, src)))
		return 0;
	r = local_stream_begin(session, NULL, err);
	if (r < 0)
		return r;
	session->stream.is_waited_for = *ret_has_begun = true;
	return 0;
}
