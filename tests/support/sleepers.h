/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that sleep on a word with futex, without a timeout, until it is not 0. */
#ifndef TESTS_SUPPORT_SLEEPERS_H
#define TESTS_SUPPORT_SLEEPERS_H

#include <stdint.h>

#define SLEEPERS_MOST 512

/* Starts n threads and returns when all are asleep. */
void sleepers_start(uint64_t *word, int n);

/* Waits until all threads have been woken and have ended. */
void sleepers_join(void);

#endif
