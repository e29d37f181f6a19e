/* Waking who sleeps on a word of a client's memory, from the loop.
 *
 * A word of a ring has one sleeper, or none. The kernel finds it among all that sleep on words of the same
 * hash, which a client can make many: once that has taken long, it is a chore for a while, in the client's
 * own share.
 */
#ifndef DAEMON_RESOURCE_WAKER_H
#define DAEMON_RESOURCE_WAKER_H

#include <stdint.h>

struct region;
struct session;
struct waker;

/* The word is in a region of the session's, which is in use while the waker is. NULL: out of memory. */
struct waker *waker_new(struct session *session, struct region *region, uint32_t *word);

/* A call under way ends by itself; the session waits for it. NULL is allowed. */
void waker_free(struct waker *waker);

/* Soon wakes those that sleep now, a few at most. */
void waker_wake(struct waker *waker);

#endif
