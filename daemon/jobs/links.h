/* SPDX-License-Identifier: Apache-2.0 */
/* This module knows the paths between devices. It counts the bytes that cross links, plans the trees by which
 * several destinations are made, and keeps the bounce buffers for devices without a link. */
#ifndef DAEMON_JOBS_LINKS_H
#define DAEMON_JOBS_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/request.h"
#include "proto/status.h"

struct bounce;
struct devices;
struct region;
struct session;

/* The service counts the bytes that transforms have read in memory of one device while their destination is
 * on another one: these cross a link. What transforms read and write in host memory crosses none. */

/* Counts bytes that a transform from src to dst has read. */
void links_count(struct devices *devices, const struct region *dst, const struct region *src, uint64_t bytes);

/* A tree says how one source reaches several destinations of one shape and type: which destination is made
 * from the source, which from another destination, and in how many chunks. These functions only plan; steps.c
 * makes the moves.
 *
 * In a star, every destination is made from the source, so that the latency is the lowest. In a chain, the
 * source is read once: the first destination is made from it, and each further device pulls from the one
 * before it, in an order that follows the fastest links. Further destinations on a device are copied there;
 * destinations in host memory are copied from the first device's. The destinations of a chain are cut along
 * one dimension: a device pulls a chunk while the one before it pulls the next.
 */

/* Maximum number of destinations besides the first, maximum number of chunks of each, and approximate maximum
 * number of moves of a request. */
#define MULTICAST_FURTHER REQUEST_MOST_FURTHER
#define MULTICAST_CHUNKS  64
#define MULTICAST_MOVES   512

#define MULTICAST_SOURCE UINT32_MAX

struct multicast_tree {
	uint32_t n;    /* number of moves, one for each destination */
	bool is_chain; /* more than one device takes part */
	/* The moves that make the destinations, one for each; a parent comes before its children. */
	struct multicast_move {
		uint32_t dst;    /* index of the destination that the move makes */
		uint32_t parent; /* index of the move whose destination is read, or MULTICAST_SOURCE */
		uint32_t device; /* device that runs it; DEVICE_ANY: both sides are in host memory */
	} move[1 + MULTICAST_FURTHER];
};

/* Plans a tree of n destinations. on[i] is the device of destination i, and src_on that of the source;
 * DEVICE_ANY stands for host memory. A chain goes over devices that reach each other, as far as there are
 * links. */
void multicast_plan_tree(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* Plans a star. Returns false if a device does not reach the source; the caller then plans a tree. */
bool multicast_plan_star(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* The destinations are cut along dimension dim into n chunks of `rows` rows; the last chunk has the rest. */
struct multicast_cut {
	int dim;
	int64_t rows;
	uint32_t n; /* 1: there is no cut */
};

/* Returns a cut of n_destinations destinations of `bytes` bytes each into chunks of about chunk_bytes. The
 * cut is along the outermost dimension that has enough rows for that, or else along the one that has the
 * most. Only dimensions d with may[d] are cut; if may is NULL, any dimension may be. */
struct multicast_cut multicast_plan_cut(int rank, const int64_t *shape, const bool *may, uint64_t bytes,
                                        uint64_t chunk_bytes, uint32_t n_destinations);

/* A transform between two devices that do not reach each other passes through a bounce buffer in host memory.
 * A session has at most one, which is made when it is first needed and lives until the session ends or needs
 * a larger one. It is a region like one that the session has created, charged to its user and listed, but
 * requests cannot name it. */

/* Sets *ret to the session's buffer if that has `bytes` bytes or more. Otherwise has a chore make one with
 * the device's engine, and returns REACH_LATER. Returns 0, REACH_LATER, QUOTA, NO_MEMORY, or what engine_make
 * does. */
int bounce_find(struct session *session, uint32_t device, uint64_t bytes, struct region **ret,
                struct error *err);

/* Frees the session's buffer, if there is one. Must be called when the session is freed. */
void bounce_free(struct session *session);

#endif
