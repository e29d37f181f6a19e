/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "softgpu.h"

static const char *const entry_names[ENTRY_COUNT] = {
#define DRIVER(name, version) [ENTRY_##name] = #name,
#include "kernels/cuda/driver/driver.def"
#define DRIVER(name, version) [ENTRY_##name] = #name,
#include "client.def"
};

#define ANY_DEVICE MOST_DEVICES
#define LOOK_US    1000 /* how often a waiting call checks SOFTGPU_LOSE */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static struct {
	bool initialized;
	pid_t process; /* the process that called cuInit */
	CUresult stuck[MOST_DEVICES];
	unsigned long long calls;
	unsigned long long calls_of[ENTRY_COUNT];
	unsigned long long launches;
	unsigned long long fail;
	char fail_call[64];
	unsigned long long fail_call_number;
	CUresult fail_with;
	bool fail_alone;
	int count_fd;
	int trace_fd;
	char live[256];
	unsigned long long fault;
	unsigned long long fault_device;
	char fault_once[256];
	char lose[256];
	unsigned long long slow_us;
	bool stuck_by_kernels;
	unsigned long long copy_us;
	unsigned long long map_us;
	uint64_t random;
} state = { .count_fd = -1, .trace_fd = -1 };

unsigned long long call_number(const char *variable, unsigned long long otherwise)
{
	const char *text = getenv(variable);
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void copy_variable(char *ret, size_t size, const char *variable)
{
	const char *text = getenv(variable);
	snprintf(ret, size, "%s", text ? text : "");
}

static void read_fail_call(void)
{
	char *colon;
	copy_variable(state.fail_call, sizeof state.fail_call, "SOFTGPU_FAIL_CALL");
	colon = strchr(state.fail_call, ':');
	state.fail_call_number = colon ? strtoull(colon + 1, NULL, 0) : 1;
	if (colon)
		*colon = '\0';
}

/* Replaces *fd with the file that the variable names. */
static void open_variable(int *fd, const char *variable, int flags)
{
	const char *path = getenv(variable);
	if (*fd >= 0)
		close(*fd);
	*fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600) : -1;
}

/* A sticky result is not reset here: only the end of the process clears it. */
static void read_environment(void)
{
	open_variable(&state.count_fd, "SOFTGPU_COUNT", O_TRUNC);
	open_variable(&state.trace_fd, "SOFTGPU_TRACE", O_APPEND);
	state.calls = 0;
	state.launches = 0;
	memset(state.calls_of, 0, sizeof state.calls_of);
	state.fail = call_number("SOFTGPU_FAIL", 0);
	state.fail_with = (CUresult)call_number("SOFTGPU_FAIL_WITH", CUDA_ERROR_OUT_OF_MEMORY);
	state.fail_alone = call_number("SOFTGPU_FAIL_ALONE", 0);
	read_fail_call();
	copy_variable(state.live, sizeof state.live, "SOFTGPU_LIVE");
	state.fault = call_number("SOFTGPU_FAULT", 0);
	state.fault_device = call_number("SOFTGPU_FAULT_DEVICE", ANY_DEVICE);
	copy_variable(state.fault_once, sizeof state.fault_once, "SOFTGPU_FAULT_ONCE");
	copy_variable(state.lose, sizeof state.lose, "SOFTGPU_LOSE");
	state.slow_us = call_number("SOFTGPU_SLOW_US", 0);
	state.stuck_by_kernels = call_number("SOFTGPU_STUCK", 0) != 0;
	state.copy_us = call_number("SOFTGPU_COPY_US", 0);
	state.map_us = call_number("SOFTGPU_MAP_US", 0);
	state.random = call_number("SOFTGPU_SEED", 1) * 2654435769u + 1;
}

/* ---- Enter and leave -------------------------------------------------------------------------------- */

static void count(enum entry entry)
{
	char text[32];
	int n;
	state.calls++;
	state.calls_of[entry]++;
	if (state.count_fd < 0)
		return;
	n = snprintf(text, sizeof text, "%20llu\n", state.calls);
	if (pwrite(state.count_fd, text, (size_t)n, 0) != n)
		perror("softgpu: SOFTGPU_COUNT");
}

static bool is_to_fail(enum entry entry)
{
	return state.calls == state.fail || (state.calls_of[entry] == state.fail_call_number &&
	                                     strcmp(entry_names[entry], state.fail_call) == 0);
}

static bool is_sticky(CUresult result)
{
	return result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
	       result == CUDA_ERROR_CONTAINED || result == CUDA_ERROR_ILLEGAL_ADDRESS ||
	       result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_ASSERT ||
	       (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED) ||
	       result == CUDA_ERROR_UNKNOWN;
}

static CUresult check(enum entry entry, int device)
{
	enum needs needs = entry_needs(entry);
	if (object_is_destroying())
		return CUDA_ERROR_NOT_PERMITTED;
	if (is_to_fail(entry)) {
		if (!state.fail_alone && is_sticky(state.fail_with))
			call_stick(device, state.fail_with);
		return state.fail_with;
	}
	if (needs >= NEEDS_INIT && !state.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs >= NEEDS_HEALTH && device != NO_DEVICE && state.stuck[device] != CUDA_SUCCESS)
		return state.stuck[device];
	CUresult result = needs == NEEDS_CONTEXT ? context_check() : CUDA_SUCCESS;
	return result ?: entry_is_unsafe(entry) ? capture_check_thread() : CUDA_SUCCESS;
}

/* Reads SOFTGPU_LOSE. An incomplete line is read again later, and a line about a device that this process
 * does not use is left to another process. */
static void look_for_loss(void)
{
	FILE *file = state.initialized && *state.lose ? fopen(state.lose, "re") : NULL;
	char line[64];
	int device, result = CUDA_ERROR_LAUNCH_FAILED;
	if (!file)
		return;
	bool is_whole = fgets(line, sizeof line, file) && strchr(line, '\n');
	fclose(file);
	if (!is_whole)
		return;
	const bool is_known = sscanf(line, "%d %d", &device, &result) >= 1 && device_exists(device);
	if (is_known && !context_any(device))
		return;
	unlink(state.lose);
	if (!is_known)
		fprintf(stderr, "softgpu: SOFTGPU_LOSE: there is no such device: %s", line);
	else
		call_stick(device, (CUresult)result);
}

/* Caller holds the lock. */
static CUresult enter_locked(enum entry entry, int device)
{
	if (entry == ENTRY_cuInit)
		read_environment();
	if (entry == ENTRY_cuGetErrorName || entry == ENTRY_cuGetErrorString)
		return CUDA_SUCCESS;
	count(entry);
	look_for_loss();
	return check(entry, device);
}

CUresult enter(enum entry entry)
{
	call_lock();
	return enter_locked(entry, context_current_ordinal());
}

CUresult enter_of(enum entry entry, int device)
{
	call_lock();
	return enter_locked(entry, device_exists(device) ? device : NO_DEVICE);
}

CUresult enter_mapping(enum entry entry)
{
	call_lock();
	unsigned long long us = state.map_us;
	call_unlock();
	usleep((useconds_t)us);
	return enter(entry);
}

CUresult leave(CUresult result)
{
	call_unlock();
	return result;
}

static CUresult init(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	devices_init();
	if (devices_count() == 0)
		return CUDA_ERROR_NO_DEVICE;
	if (!links_init())
		return CUDA_ERROR_INVALID_VALUE;
	launch_init();
	state.initialized = true;
	state.process = getpid();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	return leave(enter(ENTRY_cuInit) ?: init(flags));
}

/* ---- With the lock held ------------------------------------------------------------------------------ */

void call_stick(int device, CUresult result)
{
	for (int i = 0; i < MOST_DEVICES; i++)
		if ((device == NO_DEVICE || device == i) && state.stuck[i] == CUDA_SUCCESS)
			state.stuck[i] = result;
	call_wake();
	queue_wake();
}

CUresult call_stuck(int device)
{
	return state.stuck[device];
}

bool call_launch_faults(int device)
{
	int fd;
	if (state.fault_device != ANY_DEVICE && state.fault_device != (unsigned long long)device)
		return false;
	if (++state.launches != state.fault)
		return false;
	if (!*state.fault_once)
		return true;
	fd = open(state.fault_once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

uint64_t call_launch_ns(void)
{
	return state.slow_us * 1000;
}

bool call_is_stuck_by_kernels(void)
{
	return state.stuck_by_kernels;
}

uint64_t call_copy_ns(void)
{
	return state.copy_us * 1000;
}

uint32_t call_random(uint32_t n)
{
	state.random ^= state.random << 13;
	state.random ^= state.random >> 7;
	state.random ^= state.random << 17;
	return (uint32_t)(state.random >> 32) % n;
}

void call_wait(void)
{
	if (!*state.lose) {
		pthread_cond_wait(&changed, &lock);
		return;
	}
	call_wait_us(&changed, LOOK_US);
	look_for_loss();
}

void call_wait_for(pthread_cond_t *signalled)
{
	pthread_cond_wait(signalled, &lock);
}

void call_wait_us(pthread_cond_t *signalled, uint32_t us)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(signalled, &lock, &until);
}

void call_wake(void)
{
	pthread_cond_broadcast(&changed);
}

void call_trace(const char *format, ...)
{
	va_list args;
	if (state.trace_fd < 0)
		return;
	va_start(args, format);
	if (vdprintf(state.trace_fd, format, args) < 0)
		perror("softgpu: SOFTGPU_TRACE");
	va_end(args);
}

void call_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void call_lock(void)
{
	pthread_mutex_lock(&lock);
}

uint64_t call_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void call_sleep_until(uint64_t ns)
{
	struct timespec until = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* ---- Fork --------------------------------------------------------------------------------------------- */

/* A child has no initialized driver, as with CUDA. Its copy of the lock may be held by a thread that does not
 * exist in the child, so the lock is initialized again. */
static void start_over(void)
{
	pthread_mutex_init(&lock, NULL);
	state.initialized = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_over);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* The devices' threads have to end before the library with their code is unmapped. A forked child has no such
 * threads, and its copy of the lock may never be released, so it does nothing. */
__attribute__((destructor)) static void end(void)
{
	char text[4096];
	FILE *file;
	if (state.process != getpid())
		return;
	call_lock();
	for (int i = 0; i < MOST_DEVICES; i++)
		queue_stop(i);
	object_stop();
	if (*state.live && (file = fopen(state.live, "w"))) {
		live(text, sizeof text);
		fputs(text, file);
		fclose(file);
	}
	call_unlock();
}
