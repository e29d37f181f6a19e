/* SPDX-License-Identifier: Apache-2.0 */
/* Tests signals that many sleep on: all sleepers are woken, but not all of them by the thread that
 * submits. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/fault.h"
#include "rig.h"
#include "tests/support/sleepers.h"
#include "words.h"

#define INLINE_BYTES 1024 /* a thread moves 32 x 32 floats, and the submitting thread 8 x 8 */

static struct engine_stream *stream, *other;
static struct engine_memory *dst, *src, *words;

static void set_up(void)
{
	open_engine(1, INLINE_BYTES);
	stream = engine_stream_new(engine, &owner);
	other = engine_stream_new(engine, &owner);
	dst = new_memory(4096);
	src = new_memory(4096);
	words = new_memory(4096);
}

static void tear_down(void)
{
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, words);
	close_engine();
}

struct wakes_row {
	char name[32];
	int64_t n; /* extent of the square */
	int sleepers;
	bool canceled;
};

ParameterizedTestParameters(wakes, all)
{
	static struct wakes_row rows[] = {
		{ "one", 8, 1, false },
		{ "just more than the first", 8, TIMELINE_WAKE_FIRST, false },
		{ "many", 8, 300, false },
		{ "many, canceled", 8, 300, true },
		{ "many, moved by a thread", 32, 300, false },
		{ "many, by a thread, canceled", 32, 300, true },
		{ "nothing moved", 0, 300, false },
	};
	return cr_make_param_array(struct wakes_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* The only thread is held, and the submitting thread wakes only the first sleepers. Once the signal has been
 * set, the rest are woken whatever becomes of the stream. */
ParameterizedTest(struct wakes_row *row, wakes, all)
{
	static struct work held, work, next;
	bool is_inline = row->n < 32;
	set_up();
	hold_thread(&held, other, dst, src);
	sleepers_start((uint64_t *)(void *)data(words), row->sleepers);
	work_init(&work, row->n, false, dst, src);
	work.job.signal = (struct engine_point){ words, 0, 1 };
	engine_submit(engine, stream, &work.job);
	engine_reap(engine);
	cr_assert_eq(word_get(words, 0), is_inline, "%s", row->name);
	cr_assert_eq(n_done, is_inline && row->sleepers < TIMELINE_WAKE_FIRST, "%s: %zu ended", row->name,
	             n_done);
	if (row->canceled && is_inline)
		engine_stream_cancel(engine, stream);
	work_init(&next, 8, false, dst, src);
	engine_submit(engine, stream, &next.job);
	atomic_store(&hold, false);
	sleepers_join();
	if (row->canceled)
		engine_stream_cancel(engine, stream);
	wait_done(2);
	cr_assert_eq(done[0], &work.job, "%s", row->name);
	cr_assert_eq(work.job.status, 0, "%s: %d", row->name, work.job.status);
	tear_down();
}

/* A signal wakes a bounded number of sleepers, so that nobody can keep it waking for ever. */
Test(wakes, how_many)
{
	struct engine_point point = { .offset = 0 };
	set_up();
	point.memory = words;
	cr_assert_eq(timeline_wakes(&point), 0);
	sleepers_start((uint64_t *)(void *)data(words), 100);
	cr_assert_geq(timeline_wakes(&point), 100);
	cr_assert_lt(timeline_wakes(&point), 200);
	cr_assert_eq(timeline_wake(&point, 10), 10);
	cr_assert_eq(timeline_signal(&point), 0); /* value 0 leaves the word as it was */
	word_set(words, 0, 1);
	sleepers_join();
	cr_assert_eq(timeline_wakes(&point), 0);
	cr_assert_eq(timeline_wake(&point, 10), 0);
	tear_down();
}
