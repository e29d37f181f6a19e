/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU, the launcher and a stream: what the hardware tests and the benchmark share. They drive the kernels
 * as the engine does, without an engine, a daemon or a library beyond the driver's; on the stand-in driver
 * too.
 *
 * Failures of the rig itself end the program with one line on stderr.
 */
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
	CUdeviceptr magnitudes; /* between two passes (launch/launch.h) */
};

/* which: as device_open takes it. false when there is no GPU, *err says why. */
bool rig_open(struct rig *rig, const char *which, struct error *err);
void rig_close(struct rig *rig);

__attribute__((format(printf, 1, 2), noreturn)) void rig_die(const char *format, ...);

/* Ends the program when a driver call fails. */
#define rig_call(function, arguments)                                 \
	do {                                                          \
		struct error rig_error;                               \
		if (driver_call(&rig_error, function, arguments) < 0) \
			rig_die("%s", rig_error.message);             \
	} while (0)

CUdeviceptr rig_new(size_t size);
void rig_free(CUdeviceptr memory);

/* Facts, and the plan, for bases of these addresses. */
struct plan_facts rig_facts(const struct rig *rig, uint64_t dst, uint64_t src);
void rig_plan(const struct rig *rig, const struct transform *transform, uint64_t dst, uint64_t src,
              struct plan *ret);

/* Puts it on the stream. scale: of one that converts by a number; scales: where one with amax writes them. */
void rig_launch(struct rig *rig, const struct transform *transform, const struct plan *plan, uint64_t dst,
                uint64_t src, double scale, uint64_t scales);

/* Waits for the stream. */
void rig_wait(struct rig *rig);

#endif
