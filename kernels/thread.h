/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the threads of an engine, with all signals blocked. */
#ifndef KERNELS_THREAD_H
#define KERNELS_THREAD_H

#include <pthread.h>

/* A thread that takes no signals but those that its own instructions raise; 0 or an errno. */
int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

#endif
