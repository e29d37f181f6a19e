/* SPDX-License-Identifier: Apache-2.0 */
/* What every entry point of the stand-in driver does first and last, and the faults that tests inject.
 *
 * An entry point is   return leave(enter(ENTRY_cuX) ?: x(...));
 * enter counts the call and returns an error if the environment asks for one here, if the driver is not
 * initialized, if the context is lost, or if the calling thread has no context. It takes the one lock that
 * guards all state of the driver; leave releases it.
 *
 * An error that "sticks" is the result of every later call on its device: the device is lost until the
 * process ends, while the other devices go on.
 *
 * Environment variables control the driver; in parentheses is the default of a number. cuInit reads these and
 * sets all counts to zero:
 *
 *   SOFTGPU_FAIL=N               The Nth call fails, cuInit being the first. cuGetErrorName and
 *                                cuGetErrorString neither count nor fail.
 *   SOFTGPU_FAIL_CALL=NAME[:N]   The Nth call of that function fails (1).
 *   SOFTGPU_FAIL_WITH=RESULT     The number of the CUresult that these calls return (2, out of memory). A
 *                                result that is sticky in CUDA sticks.
 *   SOFTGPU_FAIL_ALONE=1         Such a result does not stick: the calls after it succeed.
 *   SOFTGPU_COUNT=PATH           The file always holds the number of calls so far.
 *   SOFTGPU_LIVE=PATH            At the end of the process, the file gets a list of the objects still alive.
 *   SOFTGPU_FAULT=N              The Nth kernel launch fails with an illegal address, which sticks.
 *   SOFTGPU_FAULT_DEVICE=N       Only launches on that device count for SOFTGPU_FAULT (all).
 *   SOFTGPU_FAULT_ONCE=PATH      The fault happens only if the file does not exist, and creates it.
 *   SOFTGPU_LOSE=PATH            Once the file exists, a process with a context of the device that it names
 *                                loses that device and removes the file. The file holds one line: the
 *                                device's number and the result of its calls from then on (719).
 *   SOFTGPU_SLOW_US=N            A kernel takes at least that long.
 *   SOFTGPU_STUCK=1              A kernel keeps everything else on its device from running meanwhile.
 *   SOFTGPU_COPY_US=N            A copy from or to the host or another device takes at least that long.
 *   SOFTGPU_TRACE=PATH           The file gets a line when an operation begins and when it ends: "begin" or
 *                                "end"; the unit (kernels, to_device or to_host on the first device,
 *                                kernels.N and so on on device N); the kernel's name, "copy" or "set"; its
 *                                blocks or bytes; its stream's priority; and the bytes that a kernel asks
 *                                the L2 not to keep.
 *   SOFTGPU_MAP_US=N             Calls that map or unmap memory take that much longer.
 *   SOFTGPU_SEED=N               The seed of the order in which streams take turns (1).
 *   SOFTGPU_DEVICES=N            The number of GPUs, 0 to 8 (1).
 *   SOFTGPU_CAPABILITY=M.N       Their compute capability (9.0), or a comma-separated list, whose last item
 *                                applies to all further devices.
 *   SOFTGPU_MEMORY=BYTES         The memory of each device (1 GiB).
 *   SOFTGPU_MULTIPROCESSORS=N    The multiprocessors of each device (2).
 *   SOFTGPU_LINKS=PAIR:LINK,...  The links between devices, as links.c says (all:18). A mistake fails cuInit.
 *   SOFTGPU_POISON=BYTES         How much of new memory is filled with bytes other than zero and so takes
 *                                pages of the host (64 MiB).
 *
 * These are read whenever an entry point is looked up:
 *
 *   SOFTGPU_DRIVER_VERSION=N     The driver's version, 1000 * major + 10 * minor (13000).
 *   SOFTGPU_WITHOUT=NAME         The driver lacks that entry point.
 */
#ifndef TESTS_SOFTGPU_CALL_H
#define TESTS_SOFTGPU_CALL_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum entry {
#define DRIVER(name, version) ENTRY_##name,
#include "kernels/cuda/driver/driver.def"
#define DRIVER(name, version) ENTRY_##name,
#include "client.def"
	ENTRY_COUNT
};

enum needs {
	NEEDS_NOTHING,
	NEEDS_INIT,   /* needs cuInit; is answered even if the context is lost */
	NEEDS_HEALTH, /* also needs that the context concerned, current or not, is not lost */
	NEEDS_CONTEXT
};

enum needs entry_needs(enum entry entry);

/* Returns whether captures can prohibit the call, because it is not a stream operation and a replay would not
 * repeat it, or because it waits for the device. */
bool entry_is_unsafe(enum entry entry);

CUresult enter(enum entry entry);
CUresult leave(CUresult result);

/* Enters a call that concerns the given device, whatever context is current. A device that does not exist is
 * not checked for loss. */
CUresult enter_of(enum entry entry, int device);

/* Enters a call that maps or unmaps memory, after sleeping SOFTGPU_MAP_US without the lock. */
CUresult enter_mapping(enum entry entry);

/* Caller holds the lock. */
void call_stick(int device, CUresult result); /* NO_DEVICE: every device */
CUresult call_stuck(int device);              /* 0, or the result of every further call on the device */
bool call_launch_faults(int device);          /* counts a launch; returns whether it has to fault */
uint64_t call_launch_ns(void);                /* least duration of a launch */
/* Returns whether a running kernel holds up everything else on its device. */
bool call_is_stuck_by_kernels(void);
uint64_t call_copy_ns(void);      /* least duration of a copy from or to the host */
uint32_t call_random(uint32_t n); /* from 0 to n - 1, determined by SOFTGPU_SEED */
void call_wait(void);             /* releases the lock until call_wake, then takes it again */
void call_wake(void);

/* Releases the lock until signalled is signalled; call_wait_us returns after us microseconds at the
 * latest. */
void call_wait_for(pthread_cond_t *signalled);
void call_wait_us(pthread_cond_t *signalled, uint32_t us);

/* Appends a line to the file SOFTGPU_TRACE. */
__attribute__((format(printf, 1, 2))) void call_trace(const char *format, ...);

/* Release and retake the lock around something slow that must not run under it. */
void call_unlock(void);
void call_lock(void);

/* Returns the number in the environment variable, or otherwise if it is not set. */
unsigned long long call_number(const char *variable, unsigned long long otherwise);

uint64_t call_now_ns(void);

/* Sleeps until that time of the monotonic clock. Caller does not hold the lock. */
void call_sleep_until(uint64_t ns);

#endif
