/* SPDX-License-Identifier: Apache-2.0 */
/* Whether ThreadSanitizer watches the program. It cannot follow a child that starts threads after a fork of
 * several threads, and a mapping takes a multiple of its size of the address space. */
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
