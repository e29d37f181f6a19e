/* SPDX-License-Identifier: Apache-2.0 */
/* This starts threads, with all signals blocked, and has processes end with those that started them. */
#ifndef KERNELS_THREAD_H
#define KERNELS_THREAD_H

#include <pthread.h>
#include <sys/types.h>

/* Starts a thread that takes no signals but those that its own instructions raise, and returns 0 or an errno.
 */
int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Does the same for a thread that touches memory of an untrusted user, who can make the kernel put it to
 * sleep for as long as he likes, and beyond the reach of SIGKILL. Neither the end of the process nor execve
 * waits for it, because it is no member of the process's thread group: it is a process that shares everything
 * but its id with this one, and it is killed when this one ends. It must not call a GPU's driver, which tells
 * processes apart by that id. Where the kernel does not start such a thread (an emulator), and under
 * sanitizers, it is an ordinary one. */
int thread_start_apart(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Has this process killed when its parent ends. If the parent has ended already, this process ends at once:
 * it would otherwise live on, with all descriptors that both share. */
void process_end_with(pid_t parent);

#endif
