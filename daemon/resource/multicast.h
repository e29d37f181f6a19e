/* SPDX-License-Identifier: Apache-2.0 */
/* How one source reaches several destinations, of one shape and type: which of them is made from the source,
 * which from another destination, and in how many chunks. Pure; the moves are made elsewhere.
 *
 * A star makes each from the source: it has the least latency. A tree reads the source once: its first
 * destination is made from the source, and the devices follow each other in a chain along the fastest links,
 * each from the one before. Further destinations on a device are copied there; those in host memory from the
 * first device's. The chain is cut along a dimension of the destinations: a device pulls a chunk while the
 * one before it pulls the next.
 */
#ifndef DAEMON_RESOURCE_MULTICAST_H
#define DAEMON_RESOURCE_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/request_further.h"

struct devices;

/* Destinations beside the first, and chunks of each, at most; and moves of all of a request's, about. */
#define MULTICAST_FURTHER REQUEST_MOST_FURTHER
#define MULTICAST_CHUNKS  64
#define MULTICAST_MOVES   512

#define MULTICAST_SOURCE UINT32_MAX

struct multicast_tree {
	uint32_t n;
	bool is_chain; /* more than one device takes part */
	/* Destinations, a parent before its children. */
	struct multicast_move {
		uint32_t dst;
		uint32_t
		    parent; /* the place of a move before this one: of its destination; MULTICAST_SOURCE */
		uint32_t device; /* that runs it; DEVICE_ANY: both sides are in host memory */
	} move[1 + MULTICAST_FURTHER];
};

/* n destinations; on: the device that each is on, or DEVICE_ANY: it is in host memory, as for src_on. A chain
 * goes over devices that reach each other, as far as there are links. */
void multicast_plan_tree(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* false: a device does not reach the source, and a tree is to be tried. */
bool multicast_plan_star(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret);

/* A cut of the destinations into n chunks of `rows`, the last of what is left, along a dimension. */
struct multicast_cut {
	int dim;
	int64_t rows;
	uint32_t n; /* 1: there is no cut */
};

/* Chunks of about chunk_bytes, along the outermost dimension that has as many rows, or else along the one
 * that has the most; of those that `may` says, NULL: of all. */
struct multicast_cut multicast_plan_cut(int rank, const int64_t *shape, const bool *may, uint64_t bytes,
                                        uint64_t chunk_bytes, uint32_t n_destinations);

#endif
