/* SPDX-License-Identifier: Apache-2.0 */
/* Waking clients that sleep on a word of shared memory (futex), from the loop.
 *
 * A word of a ring has one sleeper, or none. The kernel finds it among all sleepers whose words have the same
 * hash, and a client can create many of those. Once a call has taken long, the calls are made off the loop
 * for a while, as chores of the client's account.
 */
#ifndef DAEMON_RESOURCE_WAKER_H
#define DAEMON_RESOURCE_WAKER_H

#include <stdint.h>

struct region;
struct session;
struct waker;

/* The word lies in a region of the session, which the waker holds. NULL: out of memory. */
struct waker *waker_new(struct session *session, struct region *region, uint32_t *word);

/* A call under way ends by itself; the session waits for it. NULL is allowed. */
void waker_free(struct waker *waker);

/* Wakes those that sleep now, a few at most; maybe a little later. */
void waker_wake(struct waker *waker);

#endif
