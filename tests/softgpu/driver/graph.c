/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, and the instances of them that are launched.
 *
 * The nodes never change once the capture has ended: a graph and its instances share them. A launch pushes a
 * shadow operation for each node, and the shadows keep the instance alive until the last of them is freed.
 * Launches of one instance run one after the other, whatever streams they are in.
 */
#include <stdlib.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"

struct nodes {
	unsigned refs;
	unsigned instances;
	STAILQ_HEAD(, op) ops; /* in capture order, which satisfies every dependency */
	unsigned marks;        /* number of event records */
	unsigned lanes;
	struct {
		struct context *context;
		int priority;
	} lane[MOST_LANES];
};

struct graph {
	TAILQ_ENTRY(graph) entry;
	bool is_capturing;
	struct nodes *nodes;
	struct holds holds;
};

struct instance {
	TAILQ_ENTRY(instance) entry;
	bool has_handle;
	unsigned refs; /* references by the handle and by shadows */
	struct nodes *nodes;
	struct holds holds;
	struct mark *last; /* mark at the end of the last launch; NULL before the first */
	/* The instance's own streams, without handles; stream[0] is NULL. */
	struct stream *stream[MOST_LANES];
};

/* The operation that stands for a node in one launch. */
struct shadow {
	struct op op;
	struct op *node; /* NULL for the first and last operation of the launch */
	struct instance *instance;
};

static TAILQ_HEAD(, graph) graphs = TAILQ_HEAD_INITIALIZER(graphs);
static TAILQ_HEAD(, instance) instances = TAILQ_HEAD_INITIALIZER(instances);

/* ---- Nodes -------------------------------------------------------------------------------------------- */

static void nodes_unref(struct nodes *nodes)
{
	struct op *op;
	if (!nodes || --nodes->refs > 0)
		return;
	while ((op = STAILQ_FIRST(&nodes->ops))) {
		STAILQ_REMOVE_HEAD(&nodes->ops, entry);
		op_free(op);
	}
	free(nodes);
}

static struct nodes *nodes_new(void)
{
	struct nodes *nodes = malloc(sizeof *nodes);
	if (!nodes)
		return NULL;
	*nodes = (struct nodes){ .refs = 1 };
	STAILQ_INIT(&nodes->ops);
	return nodes;
}

/* Memory that the graph allocates has a fixed address, so such a graph can have only one instance at a
 * time. */
static bool has_memory(const struct nodes *nodes)
{
	const struct op *op;
	STAILQ_FOREACH(op, &nodes->ops, entry)
		if (op->allocates)
			return true;
	return false;
}

/* ---- Graphs ------------------------------------------------------------------------------------------- */

struct graph *graph_new(void)
{
	struct graph *graph = malloc(sizeof *graph);
	struct nodes *nodes = nodes_new();
	if (!graph || !nodes) {
		free(graph);
		nodes_unref(nodes);
		return NULL;
	}
	*graph = (struct graph){ .is_capturing = true, .nodes = nodes };
	SLIST_INIT(&graph->holds);
	TAILQ_INSERT_TAIL(&graphs, graph, entry);
	return graph;
}

void graph_free(struct graph *graph)
{
	if (!graph)
		return;
	TAILQ_REMOVE(&graphs, graph, entry);
	holds_release(&graph->holds);
	nodes_unref(graph->nodes);
	free(graph);
}

void graph_add(struct graph *graph, struct op *op, unsigned lane)
{
	op->lane = lane;
	STAILQ_INSERT_TAIL(&graph->nodes->ops, op, entry);
}

void graph_add_lane(struct graph *graph, const struct stream *stream)
{
	unsigned lane = graph->nodes->lanes++;
	graph->nodes->lane[lane].context = stream->context;
	graph->nodes->lane[lane].priority = stream->priority;
}

unsigned graph_add_mark(struct graph *graph)
{
	return graph->nodes->marks++;
}

void graph_end_capture(struct graph *graph)
{
	graph->is_capturing = false;
}

size_t graph_live(void)
{
	const struct graph *graph;
	size_t n = 0;
	TAILQ_FOREACH(graph, &graphs, entry)
		n++;
	return n;
}

static struct graph *find(CUgraph handle)
{
	struct graph *graph;
	TAILQ_FOREACH(graph, &graphs, entry)
		if ((CUgraph)graph == handle)
			return graph;
	return NULL;
}

/* The handle of a graph whose capture has not ended is refused: the capture owns that graph. */
static CUresult destroy(CUgraph handle)
{
	struct graph *graph = find(handle);
	if (!graph || graph->is_capturing)
		return CUDA_ERROR_INVALID_VALUE;
	graph_free(graph);
	return CUDA_SUCCESS;
}

static CUresult retain_object(CUgraph handle, CUuserObject object, unsigned count, unsigned flags)
{
	struct graph *graph = find(handle);
	if (!graph || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
		return CUDA_ERROR_INVALID_VALUE;
	return holds_add(&graph->holds, object, count, flags & CU_GRAPH_USER_OBJECT_MOVE);
}

/* ---- Instances ---------------------------------------------------------------------------------------- */

/* The instance's streams are empty when the last reference goes, because each shadow in them holds one. */
static void instance_unref(struct instance *instance)
{
	if (--instance->refs > 0)
		return;
	TAILQ_REMOVE(&instances, instance, entry);
	for (unsigned i = 0; i < MOST_LANES; i++)
		if (instance->stream[i])
			stream_destroy(instance->stream[i]);
	holds_release(&instance->holds);
	mark_unref(instance->last);
	instance->nodes->instances--;
	nodes_unref(instance->nodes);
	free(instance);
}

static CUresult make_streams(struct instance *instance)
{
	const struct nodes *nodes = instance->nodes;
	for (unsigned i = 1; i < nodes->lanes; i++) {
		CUresult result =
		    stream_new(&instance->stream[i], nodes->lane[i].context, false, nodes->lane[i].priority);
		if (result != CUDA_SUCCESS)
			return result;
		instance->stream[i]->is_hidden = true;
	}
	return CUDA_SUCCESS;
}

static CUresult instance_new(struct instance **ret, const struct graph *graph)
{
	struct instance *instance = malloc(sizeof *instance);
	if (!instance)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*instance = (struct instance){ .has_handle = true, .refs = 1, .nodes = graph->nodes };
	CUresult result = holds_copy(&instance->holds, &graph->holds);
	instance->nodes->refs++;
	instance->nodes->instances++;
	TAILQ_INSERT_TAIL(&instances, instance, entry);
	result = result ?: make_streams(instance);
	if (result == CUDA_SUCCESS)
		*ret = instance;
	else
		instance_unref(instance);
	return result;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
	struct graph *graph = find(handle);
	struct instance *instance;
	if (!ret || !graph || graph->is_capturing || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (graph->nodes->instances > 0 && has_memory(graph->nodes))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = instance_new(&instance, graph);
	if (result == CUDA_SUCCESS)
		*ret = (CUgraphExec)instance;
	return result;
}

size_t instance_live(void)
{
	const struct instance *instance;
	size_t n = 0;
	TAILQ_FOREACH(instance, &instances, entry)
		n++;
	return n;
}

static struct instance *find_instance(CUgraphExec handle)
{
	struct instance *instance;
	TAILQ_FOREACH(instance, &instances, entry)
		if ((CUgraphExec)instance == handle && instance->has_handle)
			return instance;
	return NULL;
}

/* Launches under way go on. */
static CUresult instance_destroy(CUgraphExec handle)
{
	struct instance *instance = find_instance(handle);
	if (!instance)
		return CUDA_ERROR_INVALID_VALUE;
	instance->has_handle = false;
	instance_unref(instance);
	return CUDA_SUCCESS;
}

/* ---- Launches ------------------------------------------------------------------------------------------ */

static bool is_due(const struct op *op)
{
	const struct op *node = ((const struct shadow *)op)->node;
	return node->is_due(node);
}

static CUresult run(struct op *op)
{
	struct op *node = ((struct shadow *)op)->node;
	return node->run(node);
}

static void drop(struct op *op)
{
	instance_unref(((struct shadow *)op)->instance);
}

/* Appends a shadow to the list. Returns NULL if out of memory. */
static struct op *shadow_new(struct instance *instance, struct op *node, struct ops *list)
{
	struct shadow *shadow = malloc(sizeof *shadow);
	if (!shadow)
		return NULL;
	*shadow = (struct shadow){ .op.drop = drop, .node = node, .instance = instance };
	if (node) {
		shadow->op.unit = node->unit;
		shadow->op.is_launch = node->is_launch;
		shadow->op.name = node->name;
		shadow->op.amount = node->amount;
		shadow->op.passing = node->passing;
		shadow->op.touches = node->touches;
		shadow->op.lane = node->lane;
		shadow->op.is_due = node->is_due ? is_due : NULL;
		shadow->op.run = node->run ? run : NULL;
	}
	instance->refs++;
	STAILQ_INSERT_TAIL(list, &shadow->op, entry);
	return &shadow->op;
}

/* Sets *ret to this launch's own mark that stands for the captured one. */
static bool replace_mark(struct mark **ret, const struct mark *captured, struct mark **marks)
{
	if (!captured)
		return true;
	struct mark **mark = &marks[captured->moment->slot];
	if (!*mark && !(*mark = mark_new()))
		return false;
	(*mark)->refs++;
	*ret = *mark;
	return true;
}

static bool list_nodes(struct instance *instance, struct mark **marks, struct ops *list)
{
	struct op *node, *op;
	STAILQ_FOREACH(node, &instance->nodes->ops, entry)
		if (!(op = shadow_new(instance, node, list)) ||
		    !replace_mark(&op->after, node->after, marks) ||
		    !replace_mark(&op->reaches, node->reaches, marks))
			return false;
	return true;
}

/* Lists the operations of a launch: from the wait for the previous launch to the mark that the next one waits
 * for. */
static bool list_launch(struct instance *instance, struct mark **marks, struct ops *list)
{
	struct op *first = shadow_new(instance, NULL, list);
	bool is_listed = first && list_nodes(instance, marks, list);
	struct op *last = is_listed ? shadow_new(instance, NULL, list) : NULL;
	if (!last || !(last->reaches = mark_new()))
		return false;
	first->after = instance->last;
	instance->last = last->reaches;
	instance->last->refs++;
	return true;
}

static void push_all(struct instance *instance, struct ops *list, struct stream *stream)
{
	struct op *op;
	while ((op = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, entry);
		stream_push(op->lane == 0 ? stream : instance->stream[op->lane], op);
	}
}

static void free_all(struct ops *list)
{
	struct op *op;
	while ((op = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, entry);
		op_free(op);
	}
}

static CUresult launch_in(struct instance *instance, struct stream *stream)
{
	struct ops list = STAILQ_HEAD_INITIALIZER(list);
	struct mark **marks = calloc(instance->nodes->marks + 1, sizeof(struct mark *));
	bool is_listed = marks && list_launch(instance, marks, &list);
	for (unsigned i = 0; marks && i < instance->nodes->marks; i++)
		mark_unref(marks[i]);
	free(marks);
	if (is_listed)
		push_all(instance, &list, stream);
	else
		free_all(&list);
	return is_listed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A launch cannot itself be captured: no program of the tests nests graphs. */
static CUresult launch(CUgraphExec handle, CUstream stream_handle)
{
	struct instance *instance = find_instance(handle);
	struct stream *stream = stream_find(stream_handle);
	if (!instance)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS)
		return result;
	return stream->capture ? capture_refuse(stream) : launch_in(instance, stream);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
	return leave(enter(ENTRY_cuGraphDestroy) ?: destroy(graph));
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags)
{
	return leave(enter(ENTRY_cuGraphRetainUserObject) ?: retain_object(graph, object, count, flags));
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
	return leave(enter(ENTRY_cuGraphInstantiateWithFlags) ?: instantiate(ret, graph, flags));
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec instance)
{
	return leave(enter(ENTRY_cuGraphExecDestroy) ?: instance_destroy(instance));
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec instance, CUstream stream)
{
	return leave(enter(ENTRY_cuGraphLaunch) ?: launch(instance, stream));
}
