/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of every kind through an engine in a process of its own, against one in this process. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "tests/support/tap.h"

TestSuite(process_jobs, .timeout = 300);

Test(process_jobs, says_what_it_is)
{
	struct rig rig, here;

	rig_open_here(&here, "cpu", NULL);
	rig_open(&rig, "cpu", NULL);
	cr_assert_str_eq(rig.engine->name, "cpu");
	cr_assert_str_eq(rig.engine->device, here.engine->device);
	cr_assert_str_eq(rig.engine->facts.engine, "cpu");
	cr_assert_eq(rig.engine->facts.threads, here.engine->facts.threads);
	cr_assert_eq(rig.engine->facts.align, here.engine->facts.align);
	cr_assert_eq(rig.engine->kind, REGION_KIND_MEMFD);
	cr_assert_eq(rig.engine->watches_holes, here.engine->watches_holes);
	cr_assert(rig.engine->returns);
	cr_assert_not(rig.engine->lost);
	cr_assert_not(here.engine->returns);
	rig_close(&rig);
	rig_close(&here);
}

Test(process_jobs, one_transpose)
{
	enum { N = 100 };
	static struct work work;
	struct rig rig;

	rig_open(&rig, "cpu", NULL);
	struct engine_memory *dst = rig_make(&rig, REGION_KIND_MEMFD, N * N * 4);
	struct engine_memory *src = rig_make(&rig, REGION_KIND_MEMFD, N * N * 4);
	struct engine_stream *stream = engine_stream_new(rig.engine, &rig.owner);
	uint32_t *from = src->host, *to = dst->host;

	for (uint32_t i = 0; i < N * N; i++)
		from[i] = i;
	work_init(&work, &rig, N, true, dst, src);
	engine_submit(rig.engine, stream, &work.job);
	rig_wait(&rig, 1);
	cr_assert_eq(work.job.status, 0);
	cr_assert(work.job.begun);
	cr_assert_gt(work.job.ns, 0);
	for (uint32_t r = 0; r < N; r++)
		for (uint32_t c = 0; c < N; c++)
			cr_assert_eq(to[r * N + c], from[c * N + r], "[%u, %u]", r, c);
	engine_stream_free(rig.engine, stream);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	rig_close(&rig);
}
