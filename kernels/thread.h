/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads with all asynchronous signals blocked, and ties the lives of processes to those of their
 * parents. */
#ifndef KERNELS_THREAD_H
#define KERNELS_THREAD_H

#include <pthread.h>
#include <sys/types.h>

/* Starts a thread in which all signals are blocked but those that its own instructions raise. Returns 0 or an
 * errno. */
int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Does the same for a thread that touches memory of an untrusted user, who can make the kernel put the thread
 * to sleep for as long as he likes, beyond the reach of SIGKILL. Neither the end of the process nor execve
 * waits for it, because it is no member of the process's thread group: it is a process of its own that shares
 * everything but its id with this one, and it is killed when this one ends. It must not call a GPU's driver,
 * which tells processes apart by that id. Where such a thread cannot be started (under an emulator) or
 * sanitizers are in use, an ordinary thread is started. */
int thread_start_apart(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Makes the kernel kill this process when its parent ends. If the parent has ended already, this process ends
 * at once, because it would otherwise live on with all descriptors that both share. */
void process_end_with(pid_t parent);

#endif
