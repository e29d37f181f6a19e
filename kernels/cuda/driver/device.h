/* SPDX-License-Identifier: Apache-2.0 */
/* A device is a GPU with a context in which the kernels are loaded. */
#ifndef KERNELS_CUDA_DRIVER_DEVICE_H
#define KERNELS_CUDA_DRIVER_DEVICE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/launch/kernels.h"
#include "kernels/cuda/strategy/predict.h"
#include "kernels/engine.h"
#include "proto/status.h"

/* Read by any thread between open and close. */
struct device {
	int ordinal; /* by the driver's count */
	char name[128];
	char uuid[48]; /* "GPU-3f2a9c11-..." */
	int major;     /* compute capability */
	int minor;
	bool by_mps;         /* the context is shared by NVIDIA's Multi-Process Service */
	uint32_t processors; /* streaming multiprocessors */
	uint32_t l2_bytes;
	uint32_t window_bytes; /* of memory whose place in the L2 a launch has a say in, at most; 0: none */
	uint64_t memory_bytes;
	struct copy_speed copy;
	uint32_t shared_bytes; /* that one block can be given at most */
	int driver_version;    /* of CUDA, 1000 * major + 10 * minor */
	unsigned serial;       /* that no other one of the process has, or had */
	CUdevice handle;
	CUcontext context; /* the primary one, or one of the program's (is_adopted) */
	bool is_adopted;
	CUmodule module[UNIT_COUNT];
	CUfunction function[KERNEL_COUNT]; /* may be launched with all of shared_bytes */
};

/* Opens the driver and a GPU, and makes its context current in the calling thread. which: an ordinal ("1"), a
 * UUID or the start of one with or without "GPU-" ("MIG-": of a MIG device), or NULL for the first that is
 * new enough. UNSUPPORTED without a driver or a GPU of compute capability 9.0, NOT_FOUND when no GPU is the
 * one named. On failure there is nothing to close. */
int device_open(struct device *ret, const char *which, struct error *err);

/* Loads the kernels into a context that the program has made and that is current in the calling thread. The
 * device can be used until the program destroys that context. Returns 0, UNSUPPORTED or the driver's error.
 */
int device_adopt(struct device *ret, CUcontext context, struct error *err);

/* May be called by a thread that has any context current. Afterwards none is current, unless the device was
 * adopted. */
void device_close(struct device *device);

/* Makes the context current in the calling thread. */
int device_enter(const struct device *device, struct error *err);

/* Whether it is, by the last device_enter of this thread. */
bool device_is_entered(const struct device *device);

/* How many there are; opens the driver. */
int device_count(struct error *err);

/* Whether the device may touch memory of the other one: UNSUPPORTED if not. */
int device_check_reach(const struct device *device, CUdevice other, struct error *err);

/* The same, and lets it touch all that the other one's context has. Its own context is current. Memory that
 * is imported, or was made by cuMemCreate, needs none of this. */
int device_reach(const struct device *device, const struct device *other, struct error *err);

/* The link to the device with that UUID; *ret stays as it is without one. */
void device_link(const struct device *device, const char *uuid, struct engine_link *ret);

#endif
