/* SPDX-License-Identifier: Apache-2.0 */
/* A thread inherits its creator's signal mask, so the mask is set around the start: no signal reaches the new
 * thread in between. */
#include "thread.h"

#include <signal.h>

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
