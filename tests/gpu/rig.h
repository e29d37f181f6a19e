/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU, the launcher and a stream, which the hardware tests and the benchmark share. They run the kernels as
 * the engine does, but without an engine or a daemon, and need no library except the driver's, for which the
 * stand-in will do. A failure of the rig itself ends the program with one line on stderr. */
#ifndef TESTS_GPU_RIG_H
#define TESTS_GPU_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/launch.h"

struct rig {
	struct device device;
	struct map_cache maps;
	struct launcher launcher;
	CUstream stream;
	CUdeviceptr magnitudes; /* memory for what the first of two passes computes (launch/launch.h) */
};

/* which is as device_open takes it. Returns false if there is no GPU; *err says why. */
bool rig_open(struct rig *rig, const char *which, struct error *err);
void rig_close(struct rig *rig);

__attribute__((format(printf, 1, 2), noreturn)) void rig_die(const char *format, ...);

/* Makes a driver call; ends the program if it fails. */
#define rig_call(function, arguments)                                 \
	do {                                                          \
		struct error rig_error;                               \
		if (driver_call(&rig_error, function, arguments) < 0) \
			rig_die("%s", rig_error.message);             \
	} while (0)

CUdeviceptr rig_new(size_t size);
void rig_free(CUdeviceptr memory);

/* Return the facts, and the plan, for tensors at these addresses. */
struct plan_facts rig_facts(const struct rig *rig, uint64_t dst, uint64_t src);
void rig_plan(const struct rig *rig, const struct transform *transform, uint64_t dst, uint64_t src,
              struct plan *ret);

/* Launches the transform on the stream. scale is for a conversion by a number; scales is where a conversion
 * with amax writes its scales. */
void rig_launch(struct rig *rig, const struct transform *transform, const struct plan *plan, uint64_t dst,
                uint64_t src, double scale, uint64_t scales);

/* Waits for the stream. */
void rig_wait(struct rig *rig);

#endif
