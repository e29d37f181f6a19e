/* SPDX-License-Identifier: Apache-2.0 */
/* This module knows the paths between devices: it counts what crosses their links, and plans trees of
 * destinations and bounce buffers. */
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

/* Counts bytes that have been read in src. */
void links_count(struct devices *devices, const struct region *dst, const struct region *src, uint64_t bytes);

/* A tree says how one source reaches several destinations of one shape and type: which of them is made from
 * the source, which from another destination, and in how many chunks. These functions only plan; steps.c
 * makes the moves.
 *
 * A star makes each from the source: it has the least latency. A chain reads the source once: its first
 * destination is made from the source, and the devices follow each other in a chain along the fastest links,
 * each from the one before. Further destinations on a device are copied there; those in host memory from the
 * first device's. The chain is cut along a dimension of the destinations: a device pulls a chunk while the
 * one before it pulls the next.
 */

/* Most destinations beside the first, most chunks of each, and about the most moves of all of a request's. */
#define MULTICAST_FURTHER REQUEST_MOST_FURTHER
#define MULTICAST_CHUNKS  64
#define MULTICAST_MOVES   512

#define MULTICAST_SOURCE UINT32_MAX

struct multicast_tree {
	uint32_t n;
	bool is_chain; /* more than one device takes part */
	/* These are the destinations, each parent before its children. */
	struct multicast_move {
		uint32_t dst;
		uint32_t
		    parent; /* index of the earlier move whose destination is read; or MULTICAST_SOURCE */
		uint32_t device; /* device that runs it; DEVICE_ANY: both sides are in host memory */
	} move[1 + MULTICAST_FURTHER];
};

/* Plans a tree of n destinations. on has the device of each, or DEVICE_ANY if it is in host memory; src_on is
 * the same for the source. A chain goes over devices that reach each other, as far as there are links. */
void multicast_plan_tree(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* Plans a star. Returns false if a device does not reach the source; a tree is to be tried then. */
bool multicast_plan_star(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* The destinations are cut along a dimension into n chunks of `rows`; the last one has what is left. */
struct multicast_cut {
	int dim;
	int64_t rows;
	uint32_t n; /* 1: there is no cut */
};

/* Cuts into chunks of about chunk_bytes, along the outermost dimension that has enough rows for that, or else
 * along the one that has the most. Only dimensions for which may is true are cut; NULL allows all. */
struct multicast_cut multicast_plan_cut(int rank, const int64_t *shape, const bool *may, uint64_t bytes,
                                        uint64_t chunk_bytes, uint32_t n_destinations);

/* Through a bounce buffer, which is host memory, a session's transforms pass between two devices that do not
 * reach each other. Each session has one at most, which is made when it is first needed and is there until
 * the session ends, or a larger one is needed. It is a region like one that the session has created, charged
 * to its user and listed, but not found: requests cannot name it. */

/* Finds the session's buffer, of at least so many bytes, or makes it, for the device first. Returns 0,
 * REACH_LATER, QUOTA or NO_MEMORY, or what engine_make does. */
int bounce_find(struct session *session, uint32_t device, uint64_t bytes, struct region **ret,
                struct error *err);

/* Frees the session's buffer, if there is one. Must be called when the session is freed. */
void bounce_free(struct session *session);

#endif
