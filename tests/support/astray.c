/* SPDX-License-Identifier: Apache-2.0 */
/* A tmad with the real cuda engine, except that a job of ASTRAY_BYTES bytes accesses an address without
 * memory: the device reports an illegal address, as a mistake in a kernel would cause it. */
#include "astray.h"

#include "daemon/tmad.h"

/* Added to any address of user memory, it gives an address that has no memory. */
#define NOWHERE (UINT64_C(1) << 47)

static struct engine_ops astray_ops;
static void (*submit)(struct engine_stream *stream, struct engine_job *job);

/* The job is a transform that needs a kernel, because the driver checks the addresses of a plain copy
 * itself. */
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
