/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that sleep on a word by futex until it is not 0, without a limit. */
#ifndef TESTS_SUPPORT_SLEEPERS_H
#define TESTS_SUPPORT_SLEEPERS_H

#include <stdint.h>

#define SLEEPERS_MOST 512

/* Returns when n threads are asleep. */
void sleepers_start(uint64_t *word, int n);

/* Until all have been woken. */
void sleepers_join(void);

#endif
