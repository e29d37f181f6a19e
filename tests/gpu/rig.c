/* SPDX-License-Identifier: Apache-2.0 */
/* The rig: every call is checked. */
#include "rig.h"

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/strategy/tuning.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void rig_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

bool rig_open(struct rig *rig, const char *which, struct error *err)
{
	if (device_open(&rig->device, which, err) < 0)
		return false;
	if (map_cache_init(&rig->maps, 64, 1, err) < 0)
		rig_die("%s", err->message);
	rig->launcher = (struct launcher){ .device = &rig->device, .maps = &rig->maps };
	rig_call(cuStreamCreateWithPriority, (&rig->stream, CU_STREAM_NON_BLOCKING, 0));
	rig->magnitudes = rig_new(AMAX_MAGNITUDES * sizeof(uint32_t));
	return true;
}

void rig_close(struct rig *rig)
{
	rig_free(rig->magnitudes);
	rig_call(cuStreamDestroy, (rig->stream));
	map_cache_deinit(&rig->maps);
	device_close(&rig->device);
}

CUdeviceptr rig_new(size_t size)
{
	CUdeviceptr memory;

	rig_call(cuMemAlloc, (&memory, size));
	return memory;
}

void rig_free(CUdeviceptr memory)
{
	rig_call(cuMemFree, (memory));
}

struct plan_facts rig_facts(const struct rig *rig, uint64_t dst, uint64_t src)
{
	const uint64_t bits = dst | src | 16;

	return (struct plan_facts){
		.threads = rig->device.processors,
		.align = (uint32_t)(bits & -bits),
		.copy = rig->device.copy,
		.dst_phase = dst % PLAN_PHASE,
		.src_phase = src % PLAN_PHASE,
	};
}

void rig_plan(const struct rig *rig, const struct transform *transform, uint64_t dst, uint64_t src,
              struct plan *ret)
{
	const struct plan_facts facts = rig_facts(rig, dst, src);

	plan_init(ret, transform, &facts);
}

void rig_launch(struct rig *rig, const struct transform *transform, const struct plan *plan, uint64_t dst,
                uint64_t src, double scale, uint64_t scales)
{
	const struct convert_operands operands = { .scale.number = scale,
		                                   .amax_scale = scales,
		                                   .magnitudes = rig->magnitudes };
	struct error err;

	if (launch_transform(&rig->launcher, rig->stream, transform, plan, dst, src, &operands, &err) < 0)
		rig_die("%s", err.message);
}

void rig_wait(struct rig *rig)
{
	rig_call(cuStreamSynchronize, (rig->stream));
}
