/* SPDX-License-Identifier: Apache-2.0 */
/* The capture of streams (capture.c), the graphs that it makes (graph.c), and the objects that graphs keep
 * alive (object.c).
 *
 * A capture has a lane for each stream in it; lane 0 belongs to the stream that began it. A graph is the list
 * of the captured operations, each with its lane. A replay pushes them again, in the same order: those of
 * lane 0 into the stream of the launch, those of the others into streams that belong to the graph's instance.
 */
#ifndef TESTS_SOFTGPU_CAPTURE_H
#define TESTS_SOFTGPU_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define MOST_LANES 16

struct mark;
struct op;
struct range;
struct stream;

/* ---- Captures (capture.c) ---------------------------------------------------------------------------- */

/* The point of a capture at which an event was recorded. */
struct moment {
	uint64_t capture;          /* id of the capture */
	unsigned slot;             /* index of this record among the graph's event records */
	unsigned seen[MOST_LANES]; /* how many nodes of each lane precede the record */
};

/* Returns an error, and invalidates the captures concerned, if a capture prohibits such calls to the calling
 * thread. */
CUresult capture_check_thread(void);

/* Returns 0 if an operation may be pushed into the stream. Using the legacy stream invalidates the captures
 * that it would depend on. */
CUresult capture_check(const struct stream *stream);

/* The same check for calls that query or wait for the stream's completion, which no capture allows. */
CUresult capture_check_wait(const struct stream *stream);

/* Invalidates the stream's capture; returns the result of a call that a capture cannot contain. */
CUresult capture_refuse(const struct stream *stream);

/* Appends op, which it takes over, to the graph being captured from the stream. */
void capture_push(struct stream *stream, struct op *op);

/* Records an event in a stream that is being captured. */
CUresult capture_record(struct stream *stream, struct mark *mark);

/* Makes a stream wait for an event, where the stream or the event's last record is part of a capture. */
CUresult capture_wait(struct stream *stream, const struct mark *mark);

/* Returns 0 if the event's last record was made outside captures, or the result of a call that queries it
 * otherwise. */
CUresult capture_check_mark(const struct mark *mark);

/* Returns the id of the stream's capture. */
uint64_t capture_id(const struct stream *stream);

/* Called when the stream is about to be destroyed. */
void capture_leave(struct stream *stream);

/* ---- Graphs (graph.c) -------------------------------------------------------------------------------- */

struct graph;

struct graph *graph_new(void); /* NULL if out of memory */
void graph_free(struct graph *graph);
void graph_add(struct graph *graph, struct op *op, unsigned lane);
void graph_add_lane(struct graph *graph, const struct stream *stream);
unsigned graph_add_mark(struct graph *graph);
void graph_end_capture(struct graph *graph);

size_t graph_live(void);    /* number of graphs */
size_t instance_live(void); /* number of instances that cuGraphInstantiate made */

/* ---- User objects (object.c) ------------------------------------------------------------------------- */

struct object;
struct hold;

/* The references to user objects that a graph holds. */
SLIST_HEAD(holds, hold);

CUresult holds_copy(struct holds *ret, const struct holds *holds);
void holds_release(struct holds *holds);
CUresult holds_add(struct holds *holds, CUuserObject handle, unsigned count, bool moves);

/* Returns whether the calling thread is the one that runs the destructors of user objects, which may not call
 * the driver. */
bool object_is_destroying(void);
void object_stop(void);
size_t object_live(void);

#endif
