/* SPDX-License-Identifier: Apache-2.0 */
/* A tmad whose cuda engine is the real one, but that the job of ASTRAY_BYTES goes where there is no memory:
 * the device finds an illegal address, as it would by a mistake in a kernel.
 */
#include "astray.h"

#include "daemon/tmad.h"

/* Added to an address of user memory, whatever it is, it makes one that no memory has. */
#define NOWHERE (UINT64_C(1) << 47)

static struct engine_ops astray_ops;
static void (*submit)(struct engine_stream *stream, struct engine_job *job);

/* The driver would look at the addresses of a copy of its own, so it is a transform that takes a kernel. */
static void astray_submit(struct engine_stream *stream, struct engine_job *job)
{
	if (job->move.transform->bytes == 2 * ASTRAY_BYTES)
		job->move.dst_offset += NOWHERE;
	submit(stream, job);
}

static int astray_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	int r = engine_cuda_open(ret, options, err);

	if (r < 0)
		return r;
	astray_ops = *(*ret)->ops;
	submit = astray_ops.submit;
	astray_ops.submit = astray_submit;
	(*ret)->ops = &astray_ops;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct engine_openers openers = { .cpu = engine_cpu_open,
		                                       .cuda = astray_open,
		                                       .cuda_count = engine_cuda_count };

	return tmad_main(argc, argv, &openers);
}
