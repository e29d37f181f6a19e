/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of ranges share: a service on the stand-in driver or, on "local:", this process with that
 * driver; ranges of this process's allocations; and the resources that both sides hold. Failures are reported
 * to Criterion. */
#ifndef TESTS_SERVICE_RANGES_H
#define TESTS_SERVICE_RANGES_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <stdint.h>

#include "rig.h"

#define MIB (UINT64_C(1) << 20)

extern struct process service;
extern tma_client *client; /* connected to the service */

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)
#define ok(call)   cr_assert_eq(call, TMA_OK, "%s: %s", #call, tma_last_error(client))

/* Starts the service with an argument or, on "local:", what a first request starts. ranges_stop fails if the
 * driver still has any object at the end. After the service was killed, ranges_restart starts it again on the
 * same socket path. */
void ranges_start(const char *argument);
void ranges_restart(const char *argument);
void ranges_stop(void);

/* ---- What both sides hold ---------------------------------------------------------------------------- */

#define CHARGES 4

struct held {
	int ours; /* open descriptors of this process */
	int theirs;
	/* The service's charges for regions, mapped_bytes, pending_fds and outgoing_fds. */
	int64_t charges[CHARGES];
};

struct held held_now(void);

/* Waits until both sides hold the same as before. */
void assert_held(const struct held *before, const char *name);

/* Checks a counter of the service. Does nothing on "local:". */
void assert_counted(const char *name, int64_t value, const char *what);

int count_fds(pid_t pid);

/* ---- Ranges ------------------------------------------------------------------------------------------ */

/* Allocations of one size at contiguous addresses. */
struct span {
	CUdeviceptr start;
	uint64_t chunk;
	size_t n; /* chunks mapped, from start on */
	size_t room;
};

CUmemGenericAllocationHandle new_allocation(uint64_t size, CUmemAllocationHandleType type);
void map_at(CUdeviceptr at, uint64_t size, CUmemAllocationHandleType type);

struct span span_new(uint64_t chunk, size_t n, size_t room);
void span_grow(struct span *span, size_t n);
void span_free(struct span *span);
uint64_t span_bytes(const struct span *span);

/* Frees one chunk and maps a new one in its place, as an allocator that returns memory does. */
void span_remap(const struct span *span, size_t i);

void *pointer_at(CUdeviceptr address);
tma_region *registered(CUdeviceptr start, uint64_t size);

/* ---- Moves ------------------------------------------------------------------------------------------- */

/* Transposes bytes around each border between chunks and checks that they arrive unchanged as columns. */
void assert_transposes(const struct span *span, tma_region *region, unsigned seed, const char *name);

int copy_bytes(tma_region *dst, uint64_t dst_offset, tma_region *src, uint64_t src_offset, int64_t bytes);

#endif
