/* SPDX-License-Identifier: Apache-2.0 */
/* The SIGBUS handler behind guards and covers. A guard belongs to a thread. The list of covers has a lock,
 * which the handler may take: the handler interrupts a thread that touched a client's memory, and no thread
 * does that while it holds the lock. The previous action for SIGBUS is stored before the handler is
 * installed, and does not change. */
#include "fault.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "kernels/engine.h"
#include "memory.h"

struct guard {
	sigjmp_buf back;
	const struct fault_range *ranges;
	uint32_t n;
	sigset_t mask; /* signal mask of the thread when it faulted */
};

static _Thread_local struct guard *volatile current;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sigaction before;

#define MOST_PAGES     64   /* maximum number of pages of one mapping that are replaced one by one */
#define MOST_OF_COVERS 4096 /* maximum number of such pages of all mappings */

static pthread_mutex_t covers_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, fault_cover) covers = LIST_HEAD_INITIALIZER(covers);
static uint32_t replaced; /* pages replaced in all covers; protected by covers_lock */

static bool is_guarded(const struct guard *guard, const void *address)
{
	for (uint32_t i = 0; i < guard->n; i++)
		if ((uintptr_t)address - (uintptr_t)guard->ranges[i].start < guard->ranges[i].size)
			return true;
	return false;
}

static bool is_emptied(const void *start, size_t size)
{
	return mmap((void *)start, size, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Replaces the page that failed, or the whole mapping. At first pages are replaced one by one, because the
 * other pages may still be the file's and a driver reads only a few. After many of them the whole mapping is
 * replaced at once, because each replaced page is a mapping of its own, and the number of a process's
 * mappings is limited. Returns whether it succeeded. The caller must hold covers_lock. */
static bool is_replaced(struct fault_cover *cover, const char *address)
{
	const char *start = cover->range.start;
	const char *page = address - (size_t)(address - start) % cover->page;
	atomic_store(&cover->has_failed, true);
	if (cover->replaced < MOST_PAGES && replaced < MOST_OF_COVERS && is_emptied(page, cover->page)) {
		cover->replaced++;
		replaced++;
		return true;
	}
	return is_emptied(start, cover->range.size);
}

static bool is_covered(const void *address)
{
	struct fault_cover *cover;
	bool is = false;
	int saved = errno;
	pthread_mutex_lock(&covers_lock);
	LIST_FOREACH(cover, &covers, entry)
		if ((uintptr_t)address - (uintptr_t)cover->range.start < cover->range.size) {
			is = is_replaced(cover, address);
			break;
		}
	pthread_mutex_unlock(&covers_lock);
	errno = saved;
	return is;
}

/* A SIGBUS that a process sent (si_code <= 0) has no address, and must not be treated as a fault. */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
	struct guard *guard = current;
	if (guard && info->si_code > 0 && is_guarded(guard, info->si_addr)) {
		guard->mask = ((const ucontext_t *)context)->uc_sigmask;
		siglongjmp(guard->back, 1);
	}
	if (info->si_code > 0 && is_covered(info->si_addr))
		return;
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

/* Restores the signal mask. The jump out of the handler leaves SIGBUS masked, or all signals if a sanitizer
 * has installed its own handler in between. */
static void leave_handler(void)
{
	pthread_sigmask(SIG_SETMASK, &current->mask, NULL);
}

bool fault_guard_ranges(const struct fault_range *ranges, uint32_t n, void (*work)(void *arg), void *arg)
{
	struct guard guard; /* not zeroed, because a job enters many guards and a jmp_buf is large */
	guard.ranges = ranges;
	guard.n = n;
	/* sigsetjmp does not save the signal mask, which would cost a system call for every guard. */
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

/* ---- Covers ------------------------------------------------------------------------------------------- */

void fault_cover_add(struct fault_cover *cover, struct fault_range range, size_t page)
{
	cover->range = range;
	cover->page = page;
	cover->replaced = 0;
	atomic_init(&cover->has_failed, false);
	pthread_mutex_lock(&covers_lock);
	LIST_INSERT_HEAD(&covers, cover, entry);
	pthread_mutex_unlock(&covers_lock);
}

void fault_cover_remove(struct fault_cover *cover)
{
	pthread_mutex_lock(&covers_lock);
	LIST_REMOVE(cover, entry);
	replaced -= cover->replaced;
	pthread_mutex_unlock(&covers_lock);
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

/* ---- Words of timelines -------------------------------------------------------------------------------- */

/* Waking a few threads takes 50 us. If it took longer than SLOW_WAKE_NS, the owner's wake-ups count as slow
 * for SLOW_WAKES_NS. */
#define SLOW_WAKE_NS  250000
#define SLOW_WAKES_NS 1000000000

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of timelines are little-endian");

struct access {
	uint64_t *word;
	uint64_t value;
};

static uint64_t *word_of(const struct engine_point *point)
{
	return (uint64_t *)(void *)(host_memory(point->memory)->data + point->offset);
}

static bool guarded(const struct engine_point *point, void (*work)(void *arg), struct access *access)
{
	struct fault_range ranges[2] = { host_memory(point->memory)->mapped, { NULL, 0 } };
	return fault_guard(ranges, work, access);
}

static void load(void *arg)
{
	struct access *access = arg;
	access->value = __atomic_load_n(access->word, __ATOMIC_ACQUIRE);
}

static void store(void *arg)
{
	struct access *access = arg;
	__atomic_store_n(access->word, access->value, __ATOMIC_RELEASE);
}

int timeline_read(const struct engine_point *point, uint32_t *ret_low)
{
	struct access access = { word_of(point), 0 };
	if (!guarded(point, load, &access))
		return STATUS_DEVICE;
	*ret_low = (uint32_t)access.value;
	return (int64_t)(access.value - point->value) >= 0;
}

int timeline_signal(const struct engine_point *point)
{
	struct access access = { word_of(point), point->value };
	if (!guarded(point, store, &access))
		return STATUS_DEVICE;
	return 0;
}

/* If the memory has gone, the call fails, and nobody can be asleep on it any more. */
uint32_t timeline_wake(const struct engine_point *point, uint32_t n)
{
	long woken = syscall(SYS_futex, timeline_futex(point), FUTEX_WAKE, n, NULL, NULL, 0);
	return woken < 0 ? 0 : (uint32_t)woken;
}

/* A thread that was woken may be asleep again, waiting for the next value, before all others have been woken;
 * it is then last in the queue. The sleepers are therefore counted first, by requeueing them to the futex on
 * which they are. A thread with a real-time policy is queued in front of others when it sleeps again, and
 * would be woken in their place, so the number is increased. */
uint32_t timeline_wakes(const struct engine_point *point)
{
	long n = syscall(SYS_futex, timeline_futex(point), FUTEX_REQUEUE, 0, TIMELINE_WAKE_MOST,
	                 timeline_futex(point), 0);
	if (n > 0)
		n += n / 4 + TIMELINE_WAKE_MORE;
	return n < 0 || n > TIMELINE_WAKE_MOST ? TIMELINE_WAKE_MOST : (uint32_t)n;
}

void timeline_note_wake(struct engine_owner *owner, uint64_t start_ns, uint64_t end_ns)
{
	if (end_ns - start_ns > SLOW_WAKE_NS)
		__atomic_store_n(&owner->slow_wakes_until_ns, end_ns + SLOW_WAKES_NS, __ATOMIC_RELAXED);
}

bool timeline_wakes_are_slow(const struct engine_owner *owner, uint64_t now_ns)
{
	return now_ns < __atomic_load_n(&owner->slow_wakes_until_ns, __ATOMIC_RELAXED);
}

uint32_t *timeline_futex(const struct engine_point *point)
{
	return (uint32_t *)(void *)word_of(point);
}
