/* SPDX-License-Identifier: Apache-2.0 */
/* A relay is a thread that accesses a submission ring on behalf of the loop, if the ring lies in memory that
 * may stall (struct engine_memory). It copies entries out of the ring, writes completions (struct
 * submission_end) into it, and wakes the client. If an access to the memory never returns, only that client's
 * ring stops working.
 *
 * A ring with a relay never has `awake` set, so the client has to send a "ring" message whenever it has
 * submitted entries. Only the loop's thread may call these functions.
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

/* Starts a relay for a ring with that many entries at `shared`, which lies in region. The relay holds the
 * session and the region until its thread has ended. on_news(session) is called on the loop when a look at
 * the ring that relay_entry asked for has found entries, when relay_is_rung has become false, and when the
 * memory has failed. Returns NULL if out of memory or if no thread could be started. */
struct relay *relay_new(struct session *session, struct region *region, struct submission_ring *shared,
                        uint32_t entries, void (*on_news)(struct session *session));

/* Tells the thread to end after it has written all ends, and does not wait for that. The caller must not use
 * the relay afterwards. relay may be NULL. */
void relay_close(struct relay *relay);

enum relay_found {
	RELAY_NONE,   /* no entry is known; the thread looks, and on_news is called if it finds one */
	RELAY_ENTRY,  /* *ret is the entry */
	RELAY_BROKEN, /* the counters claim more entries than the ring has room for */
	RELAY_FAILED, /* the memory of the ring has failed */
};

/* Notes that the client has sent a "ring" message: there are new entries. */
void relay_ring(struct relay *relay);

/* Sets *ret to the entry with that number, as counted by `submitted` (proto/submission.h). Asking for the
 * same number again gives the same entry. */
enum relay_found relay_entry(struct relay *relay, uint32_t number, struct submission_entry *ret);

/* Queues an end for the thread to write, after those queued before. The caller never has more ends
 * outstanding than the ring has entries. */
void relay_end(struct relay *relay, const struct submission_end *end);

/* Returns whether the client has sent "ring" and the thread has not finished a look at the ring that began
 * after that. False if the memory has failed. */
bool relay_is_rung(struct relay *relay);

/* Returns the number of runs that are inside the relay: entries from `number` on that it has copied and the
 * loop has not taken, and ends that it has not written. Returns 0 if the memory has failed. */
uint32_t relay_count(struct relay *relay, uint32_t number);

/* Returns whether a relay of the account has been at work on the same access to its ring for at least ns. */
bool relays_are_busy(const struct account *account, uint64_t ns);

#endif
