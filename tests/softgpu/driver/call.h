/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the stand-in driver: what every entry point does first and last, and what goes wrong on
 * purpose.
 *
 * An entry point is   return leave(enter(ENTRY_cuX) ?: x(...));
 * enter counts the call, fails it where that was asked for, where the driver is not initialised, where the
 * context is lost or where the calling thread has none. One lock, held between the two, guards all state.
 *
 * What is lost is a device: nothing but the end of the process brings it back, and the others go on.
 *
 * By environment; what is not set does nothing. Read by cuInit, which starts all counts anew:
 *
 *   SOFTGPU_FAIL=N               the Nth call fails (from 1, cuInit; but cuGetErrorName and cuGetErrorString)
 *   SOFTGPU_FAIL_CALL=NAME[:N]   the Nth call of that function fails (1)
 *   SOFTGPU_FAIL_WITH=RESULT     with that CUresult's number (2, out of memory); a sticky one sticks
 *   SOFTGPU_FAIL_ALONE=1         a sticky one does not: the calls after it go well
 *   SOFTGPU_COUNT=PATH           a file that always holds the number of calls so far
 *   SOFTGPU_LIVE=PATH            a file that the end of the process fills with what is then still there
 *   SOFTGPU_FAULT=N              the Nth kernel launch dies of an illegal address, which sticks
 *   SOFTGPU_FAULT_DEVICE=N       only launches on that device count (all)
 *   SOFTGPU_FAULT_ONCE=PATH      unless that file is there; it is made when it happens
 *   SOFTGPU_LOSE=PATH            a file that loses a device once it is there, in a process that has a context
 *                                of it, and is then removed: a line of the device's number and the result of
 *                                its calls from then on (719)
 *   SOFTGPU_SLOW_US=N            a kernel takes that long at least
 *   SOFTGPU_STUCK=1              and holds up all else on the device
 *   SOFTGPU_COPY_US=N            a copy from or to the host, or another device, takes that long at least
 *   SOFTGPU_TRACE=PATH           a file to which a line is added as an operation begins or ends: "begin" or
 *                                "end", the unit (kernels, to_device, to_host; of device N but the first
 *                                kernels.N and so on), the kernel's name or what
 *                                else it is (copy, set), its blocks or bytes, its stream's priority,
 *                                the bytes of which a kernel says that they need not be kept
 *   SOFTGPU_MAP_US=N             calls that map or unmap memory take that much longer
 *   SOFTGPU_SEED=N               of the order in which streams take turns (1)
 *   SOFTGPU_DEVICES=N            GPUs, 0 to 8 (1)
 *   SOFTGPU_CAPABILITY=M.N       of all of them, or a list by commas, the last for the rest (9.0)
 *   SOFTGPU_MEMORY=BYTES         of each (1 GiB)
 *   SOFTGPU_MULTIPROCESSORS=N    of each (2)
 *   SOFTGPU_LINKS=PAIR:LINK,...  between them, as links.c says (all:18); what is wrong fails cuInit
 *   SOFTGPU_POISON=BYTES         of new memory that are not zero, and take pages (64 MiB)
 *
 * Read whenever an entry point is looked up:
 *
 *   SOFTGPU_DRIVER_VERSION=N     the driver's, 1000 * major + 10 * minor (13000)
 *   SOFTGPU_WITHOUT=NAME         the driver lacks that entry point
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
	NEEDS_INIT,   /* and is answered whatever became of the context */
	NEEDS_HEALTH, /* and a context that is not lost, current or not */
	NEEDS_CONTEXT
};

enum needs entry_needs(enum entry entry);

/* This tells whether captures can prohibit the call: what it does is no operation of a stream, so that a
 * replay would not repeat it, or it waits for the device. */
bool entry_is_unsafe(enum entry entry);

CUresult enter(enum entry entry);
CUresult leave(CUresult result);

/* Of calls that are about that device, whatever context is current; about none when it does not exist. */
CUresult enter_of(enum entry entry, int device);

/* Of calls that map: waits as SOFTGPU_MAP_US says, without the lock, then enters. */
CUresult enter_mapping(enum entry entry);

/* With the lock held. */
void call_stick(int device, CUresult result); /* NO_DEVICE: to all of them */
CUresult call_stuck(int device);              /* 0, or what every later call of the device answers */
bool call_launch_faults(int device);          /* counts a launch */
uint64_t call_launch_ns(void);                /* what a launch takes at least */
bool call_is_stuck_by_kernels(void);          /* while one runs, nothing else does on its device */
uint64_t call_copy_ns(void);                  /* what a copy from or to the host does */
uint32_t call_random(uint32_t n);             /* 0 to n - 1, by the seed */
void call_wait(void);                         /* gives the lock up until call_wake */
void call_wake(void);

/* Likewise, until that is signalled; call_wait_us: or for so long. */
void call_wait_for(pthread_cond_t *signalled);
void call_wait_us(pthread_cond_t *signalled, uint32_t us);

/* A line of SOFTGPU_TRACE. */
__attribute__((format(printf, 1, 2))) void call_trace(const char *format, ...);

/* Gives the lock up for as long as it takes to do what must not hold it. */
void call_unlock(void);
void call_lock(void);

/* The number that a variable holds, or otherwise when it is not set. */
unsigned long long call_number(const char *variable, unsigned long long otherwise);

uint64_t call_now_ns(void);

/* Without the lock: sleeps until then. */
void call_sleep_until(uint64_t ns);

#endif
