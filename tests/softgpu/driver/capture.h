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

/* The point in a capture that an event was recorded at. */
struct moment {
	uint64_t capture;          /* its id */
	unsigned slot;             /* its number among the events of the graph */
	unsigned seen[MOST_LANES]; /* how many nodes of each lane precede it */
};

/* Fails a call that captures prohibit to the calling thread, and invalidates them. */
CUresult capture_check_thread(void);

/* This tells whether an operation can be pushed into the stream; a use of the legacy one invalidates the
 * captures that it would depend on. */
CUresult capture_check(const struct stream *stream);

/* This does the same for calls that ask what the stream has done, which no capture allows. */
CUresult capture_check_wait(const struct stream *stream);

/* Invalidates the capture that the stream is in, and returns what a call that it cannot contain answers. */
CUresult capture_refuse(const struct stream *stream);

/* Takes the op, as a node of the graph that the stream is captured into. */
void capture_push(struct stream *stream, struct op *op);

/* An event is recorded in a stream that is captured. */
CUresult capture_record(struct stream *stream, struct mark *mark);

/* A stream waits for an event; the stream, the event's last record or both are part of a capture. */
CUresult capture_wait(struct stream *stream, const struct mark *mark);

/* This is the answer to a call that asks for the event's last record: 0 if that was outside of captures. */
CUresult capture_check_mark(const struct mark *mark);

/* The id of the capture that the stream is in. */
uint64_t capture_id(const struct stream *stream);

/* The stream is about to be destroyed. */
void capture_leave(struct stream *stream);

/* ---- Graphs (graph.c) -------------------------------------------------------------------------------- */

struct graph;

struct graph *graph_new(void); /* NULL when out of memory */
void graph_free(struct graph *graph);
void graph_add(struct graph *graph, struct op *op, unsigned lane);
void graph_add_lane(struct graph *graph, const struct stream *stream);
unsigned graph_add_mark(struct graph *graph);
void graph_end_capture(struct graph *graph);

size_t graph_live(void);    /* graphs */
size_t instance_live(void); /* graphs that cuGraphInstantiate made */

/* ---- User objects (object.c) ------------------------------------------------------------------------- */

struct object;
struct hold;

/* The references that a graph has. */
SLIST_HEAD(holds, hold);

CUresult holds_copy(struct holds *ret, const struct holds *holds);
void holds_release(struct holds *holds);
CUresult holds_add(struct holds *holds, CUuserObject handle, unsigned count, bool moves);

/* Whether the calling thread is the one that destroys objects, whose callbacks may not call the driver. */
bool object_is_destroying(void);
void object_stop(void);
size_t object_live(void);

#endif
