/* SPDX-License-Identifier: Apache-2.0 */
/* A thread inherits its creator's signal mask, so thread_start sets the mask around the creation: no signal
 * can reach the new thread in between.
 *
 * A thread apart (thread_start_apart) is made by an ordinary thread, the lender, which lends it its
 * thread-local storage and a part of its stack and does nothing but wait for it. That is why libc, locks and
 * guards work in the thread apart as in any thread. The lender can be killed while it waits, and its end
 * kills the thread apart (PR_SET_PDEATHSIG).
 */
#include "thread.h"

#include <alloca.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART_STACK_BYTES ((size_t)1 << 20)
#define STACK_ALIGN       64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

struct apart {
	pid_t lender; /* id of the process that the lender belongs to */
	void *(*run)(void *arg);
	void *arg;
};

int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
	sigset_t mask, before;

	sigfillset(&mask);
	sigdelset(&mask, SIGBUS);
	sigdelset(&mask, SIGSEGV);
	sigdelset(&mask, SIGILL);
	sigdelset(&mask, SIGFPE);
	sigdelset(&mask, SIGTRAP);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	int r = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

void process_end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

/* ---- Apart ------------------------------------------------------------------------------------------ */

static int run_apart(void *arg)
{
	const struct apart *apart = arg;

	process_end_with(apart->lender);
	apart->run(apart->arg);
	return 0;
}

/* The lender's thread. Without CLONE_SETTLS the new task uses the lender's thread-local storage, including
 * errno and malloc's cache, which the lender must not touch meanwhile. The task's exit sends no signal, so it
 * is waited for with __WALL. */
static void *lend(void *arg)
{
	const struct apart apart = *(struct apart *)arg;
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM;
	char *stack = alloca(APART_STACK_BYTES);
	char *top = (char *)((uintptr_t)(stack + APART_STACK_BYTES) & ~(uintptr_t)(STACK_ALIGN - 1));
	pid_t pid;

	free(arg);
	pid = clone(run_apart, top, flags, (void *)&apart);
	if (pid < 0) {
		apart.run(apart.arg);
		return NULL;
	}
	while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		continue;
	return NULL;
}

int thread_start_apart(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
	struct apart *apart;

	if (IS_SANITIZED)
		return thread_start(ret, run, arg);
	apart = malloc(sizeof *apart);
	if (!apart)
		return ENOMEM;
	*apart = (struct apart){ getpid(), run, arg };
	int r = thread_start(ret, lend, apart);
	if (r)
		free(apart);
	return r;
}
