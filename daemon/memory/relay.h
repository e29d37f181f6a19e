/* SPDX-License-Identifier: Apache-2.0 */
/* A relay is a thread that touches a submission ring for the loop, where the ring lies in memory that may
 * stall (engine_memory). It copies entries out and ends in, and wakes the client. If it does not
 * come back, that costs the client its ring, and nobody else anything.
 *
 * The service never says that it is awake (`awake` in the ring) while a relay works for it, so the client
 * sends a message whenever it has submitted something. The loop makes all calls.
 */
#ifndef DAEMON_MEMORY_RELAY_H
#define DAEMON_MEMORY_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/submission.h"

struct account;
struct region;
struct relay;
struct session;

/* Starts the thread, which holds the session and the region until it has ended. on_news(session) is called
 * when there may be entries after a look that found none, when the ring is rung no longer, and when the
 * memory has failed. It returns NULL if there is no memory or no thread. */
struct relay *relay_new(struct session *session, struct region *region, struct submission_ring *shared,
                        uint32_t entries, void (*on_news)(struct session *session));

/* Has the thread write the ends that it was given, and then end; nobody waits for that. NULL is allowed. */
void relay_close(struct relay *relay);

enum relay_found {
	RELAY_NONE,   /* There is none yet. The thread looks, and on_news is called if it finds any. */
	RELAY_ENTRY,  /* The entry is in *ret. */
	RELAY_BROKEN, /* The ring has more entries than it has room for. */
	RELAY_FAILED, /* The ring's memory has failed. */
};

/* Notes that the client says that it has submitted something. */
void relay_ring(struct relay *relay);

/* Finds the entry of that number, counted from the ring's first one. A number that is asked for again is
 * found again. */
enum relay_found relay_entry(struct relay *relay, uint32_t number, struct submission_entry *ret);

/* Has the thread write the end after those before it. There are never more ends to write than the ring has
 * room for. */
void relay_end(struct relay *relay, const struct submission_end *end);

/* Returns whether the client has rung and the thread has not looked at the ring since. */
bool relay_is_rung(struct relay *relay);

/* Counts the runs that the relay holds: the entries that it has read from that number on, which the loop has
 * not taken yet, and the ends that it has not written yet. A relay whose memory has failed holds none. */
uint32_t relay_count(struct relay *relay, uint32_t number);

/* Returns whether a relay of the account has had the same thing to do for at least ns. */
bool relays_are_busy(const struct account *account, uint64_t ns);

#endif
