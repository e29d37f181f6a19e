/* What tmactl top sees at one moment, and what went on between two. */
#ifndef CLIENT_TMACTL_TOP_SNAPSHOT_H
#define CLIENT_TMACTL_TOP_SNAPSHOT_H

#include "sessions.h"
#include "client/tmactl/tmactl.h"

/* In the order of commands.def's words. */
enum sort_key {
	SORT_RATE,
	SORT_BYTES,
	SORT_P50,
	SORT_P99,
	SORT_ERRORS,
	SORT_MAPPED,
	SORT_UID,
	SORT_PID,
	SORT_COUNT
};

/* A connection, or all of the service, since the look before. */
struct usage {
	double requests_per_s;
	double bytes_per_s;
	uint64_t p50_us; /* upper bounds; 0: nothing was moved */
	uint64_t p99_us;
	const struct session_row *session; /* NULL: of the service */
};

struct look {
	double at; /* seconds, by the monotonic clock */
	tma_document *info;
	tma_document *stats;
	struct session_list sessions;
	struct usage all;
	struct usage *usage; /* sessions.n of them, sorted */
};

/* Asks the service. was: the look before, NULL for the first; then rates are since each connection was made.
 * 0 or -1: nothing is to be deinitialised then. */
int look_init(struct look *ret, tma_client *client, const struct look *was, struct failure *f);

/* Zero-initialised is allowed. */
void look_deinit(struct look *look);

void look_sort(struct look *look, enum sort_key key);

/* Whether both are of one run of the service. */
int look_is_same_run(const struct look *a, const struct look *b);

#endif
