/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: memory that a connection has shared with the service, or had it create.
 *
 * A region's id belongs to its connection and is never given twice. A region lives from the reply that names
 * it until it is released and no job and no table uses it. Then it is unmapped off the loop, because that can
 * take long. Its charges are released, and its release is answered with "closed", only when the memory has
 * really gone.
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

struct reach;
struct region_source;
struct server;
struct session;

/* What a region's memory costs its owner. */
struct region_charges {
	struct charge count;
	struct charge bytes;
	struct charge created; /* host memory that the service created */
	struct charge pool;    /* memory of a pool */
	struct charge fds;     /* that are kept where there are several devices */
};

void region_charges_release(struct region_charges *charges);

struct region {
	struct server *server;
	uint64_t id;
	enum region_state state;
	uint32_t device; /* whose engine it was first mapped by, and on which it is, if it is on one */
	struct engine_memory *memory; /* there */
	struct reach **reaches;       /* by other devices (reach.h); NULL: by none */
	struct region_source *source; /* NULL: it is not kept */
	bool is_bounce;               /* requests cannot name it (bounce.h) */
	bool is_sealed_here;          /* the service has sealed its file, not its client */
	uint32_t jobs;                /* jobs that use it by themselves */
	uint32_t tables;              /* entries of tables that name it */
	struct session *session;      /* NULL: it has left its table */
	void (*on_closed)(void *arg); /* NULL: no release is to be answered */
	void *on_closed_arg;
	struct region_charges charges; /* released when the memory has gone */
	struct chore unmapping;
};

struct region_table {
	struct session *session;
	struct id_table ids;
	uint64_t mapped_bytes; /* in all of its regions */
};

void region_table_init(struct region_table *table, struct session *session);

/* All regions must have been released. */
void region_table_deinit(struct region_table *table);

/* Adds memory that the device's engine has mapped, with its charges. Returns 0 or NO_MEMORY (nothing is taken
 * over then). */
int region_table_add(struct region_table *table, uint32_t device, struct engine_memory *memory,
                     struct region_charges *charges, struct region **ret, struct error *err);

/* Finds an open region by id; NOT_FOUND names the argument ("src.region"). */
int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err);

/* Returns PERMISSION unless transforms may write to it; name as above. */
int region_check_writable(const struct region *region, const char *name, struct error *err);

/* Iterates over the open and draining regions of a table: NULL past the last. *cursor starts at 0. */
struct region *region_table_next(const struct region_table *table, uint32_t *cursor);

/* Ends a region. CLOSED: nothing uses it, and its memory is unmapped now. DRAINING: it is unmapped when its
 * last job has ended and its last table is gone. */
enum region_state region_release(struct region *region);

/* After a release that was CLOSED: has on_closed called once the memory and the charges have gone. */
void region_when_closed(struct region *region, void (*on_closed)(void *arg), void *arg);

void region_table_release_all(struct region_table *table);

/* A job holds the regions that it uses. */
void region_use(struct region *region);
void region_unuse(struct region *region);

/* As does each entry of a table (table.h). */
void region_join_table(struct region *region);
void region_leave_table(struct region *region);

#endif
