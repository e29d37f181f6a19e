/* SPDX-License-Identifier: Apache-2.0 */
/* The SIGBUS handler behind the guard. A guard belongs to a thread; the handler touches nothing else but the
 * previous action, which is stored before the handler is installed and stays. */
#include "fault.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include "kernels/engine.h"

struct guard {
	sigjmp_buf back;
	const struct fault_range *ranges;
	uint32_t n;
	sigset_t mask; /* of the thread, when it faulted */
};

static _Thread_local struct guard *volatile current;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sigaction before;

static bool is_guarded(const struct guard *guard, const void *address)
{
	for (uint32_t i = 0; i < guard->n; i++)
		if ((uintptr_t)address - (uintptr_t)guard->ranges[i].start < guard->ranges[i].size)
			return true;
	return false;
}

/* Nothing but a fault has an address; a SIGBUS that was sent is not answered by going back. */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
	struct guard *guard = current;
	if (guard && info->si_code > 0 && is_guarded(guard, info->si_addr)) {
		guard->mask = ((const ucontext_t *)context)->uc_sigmask;
		siglongjmp(guard->back, 1);
	}
	sigaction(number, &before, NULL);
	if (info->si_code <= 0)
		raise(number);
}

int fault_init(void)
{
	int r = 0;
	pthread_mutex_lock(&lock);
	if (users == 0) {
		struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
		sigemptyset(&action.sa_mask);
		if (sigaction(SIGBUS, NULL, &before) < 0 || sigaction(SIGBUS, &action, NULL) < 0)
			r = -errno;
	}
	if (r == 0)
		users++;
	pthread_mutex_unlock(&lock);
	return r;
}

void fault_deinit(void)
{
	pthread_mutex_lock(&lock);
	if (--users == 0)
		sigaction(SIGBUS, &before, NULL);
	pthread_mutex_unlock(&lock);
}

/* The jump out of the handler has left signals masked: its own, and all of them where a sanitizer stands in
 * between. */
static void leave_handler(void)
{
	pthread_sigmask(SIG_SETMASK, &current->mask, NULL);
}

bool fault_guard_ranges(const struct fault_range *ranges, uint32_t n, void (*work)(void *arg), void *arg)
{
	struct guard guard = { .ranges = ranges, .n = n };
	/* The mask is not saved, which would be a system call for every guard. */
	bool whole = sigsetjmp(guard.back, 0) == 0;
	if (whole) {
		current = &guard;
		work(arg);
	} else {
		leave_handler();
	}
	current = NULL;
	return whole;
}

bool fault_guard(const struct fault_range ranges[2], void (*work)(void *arg), void *arg)
{
	return fault_guard_ranges(ranges, 2, work, arg);
}

/* ---- The owner's door: engine.h ---------------------------------------------------------------------- */

int engine_guard_init(void)
{
	return fault_init();
}

void engine_guard_deinit(void)
{
	fault_deinit();
}

bool engine_guard(const void *start, size_t size, void (*work)(void *arg), void *arg)
{
	const struct fault_range range = { start, size };
	const struct fault_range ranges[2] = { range, range };

	return fault_guard(ranges, work, arg);
}
