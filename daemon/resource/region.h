/* Regions: memory that a connection has shared with us, or had us make.
 *
 * A region's id belongs to its connection and is never given twice. It lives from
 * the reply that names it until it is released and no job uses it; then it is unmapped off the loop,
 * because that can take long. Its charges go, and its release is answered "closed", when the memory is really
 * gone.
 */
#ifndef DAEMON_RESOURCE_REGION_H
#define DAEMON_RESOURCE_REGION_H

#include <stdint.h>

#include "daemon/net/account.h"
#include "chore.h"
#include "id_table.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"

struct server;
struct session;

struct region {
	struct server *server;
	uint64_t id;
	enum region_state state;
	struct engine_memory *memory;
	uint32_t jobs;                /* that use it */
	struct session *session;      /* NULL when it is not in its table any more */
	void (*on_closed)(void *arg); /* NULL: nobody waits */
	void *on_closed_arg;
	struct charge count;
	struct charge bytes;
	struct charge created; /* of host memory that the service made; its pages go before the charge does */
	struct chore unmapping;
};

struct region_table {
	struct session *session;
	struct id_table ids;
	uint64_t mapped_bytes; /* in its regions */
};

void region_table_init(struct region_table *table, struct session *session);

/* Every region must have been released. */
void region_table_deinit(struct region_table *table);

/* Puts a mapped memory into the table, with its charges; 0 or NO_MEMORY (nothing is taken then). */
int region_table_add(struct region_table *table, struct engine_memory *memory, struct charge *count,
                     struct charge *bytes, struct region **ret, struct error *err);

/* An open region by id; NOT_FOUND names the argument ("src.region"). */
int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err);

/* PERMISSION unless transforms may write to it; name as above. */
int region_check_writable(const struct region *region, const char *name, struct error *err);

/* Region i of the open and draining ones in a table, for listing: NULL past the last. *cursor starts at 0. */
struct region *region_table_next(const struct region_table *table, uint32_t *cursor);

/* Ends a region: CLOSED when no job uses it (its memory goes now), else DRAINING until the last one ends. */
enum region_state region_release(struct region *region);

/* After a release that was CLOSED: on_closed is called once the memory and the charges are gone. */
void region_when_closed(struct region *region, void (*on_closed)(void *arg), void *arg);

void region_table_release_all(struct region_table *table);

/* Jobs hold the regions that they use. */
void region_use(struct region *region);
void region_unuse(struct region *region);

#endif
