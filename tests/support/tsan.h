/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether the program runs under ThreadSanitizer, which cannot follow a child that starts threads after
 * a fork of a multithreaded process, and which needs a multiple of each mapping's size in address space. */
#ifndef TESTS_SUPPORT_TSAN_H
#define TESTS_SUPPORT_TSAN_H

#include <stdbool.h>

static inline bool tsan_watches(void)
{
#if defined(__SANITIZE_THREAD__)
	return true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
	return true;
#endif
#endif
	return false;
}

#endif
