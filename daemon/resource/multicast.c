/* SPDX-License-Identifier: Apache-2.0 */
/* Trees over destinations, and their chunks. */
#include "multicast.h"

#include "daemon/devices.h"

#define NONE UINT32_MAX

/* ---- Stars --------------------------------------------------------------------------------------------- */

static bool reaches(const struct devices *devices, uint32_t device, uint32_t other)
{
	return device == other || other == DEVICE_ANY ||
	       devices->of[device].links[other].kind != ENGINE_LINK_NONE;
}

static void add(struct multicast_tree *tree, uint32_t dst, uint32_t parent, uint32_t device)
{
	tree->move[tree->n++] = (struct multicast_move){ .dst = dst, .parent = parent, .device = device };
}

bool multicast_plan_star(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret)
{
	ret->n = 0;
	ret->is_chain = false;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t device = on[i] == DEVICE_ANY ? src_on : on[i];

		if (device != DEVICE_ANY && !reaches(devices, device, src_on))
			return false;
		add(ret, i, MULTICAST_SOURCE, device);
	}
	return true;
}

/* ---- Trees --------------------------------------------------------------------------------------------- */

/* While a chain is made. */
struct chain {
	const struct devices *devices;
	const uint32_t *on;
	uint32_t n;
	uint32_t src_on;
	bool is_left[ENGINES_MOST]; /* it has destinations, none of which is in the tree */
	uint32_t n_left;
	uint32_t head[ENGINES_MOST]; /* the place of its first move; NONE */
	uint32_t order[ENGINES_MOST];
	uint32_t n_order;
	struct multicast_tree *tree;
};

/* The device left that reaches `from` the fastest, of equals the one that comes next by number; NONE. */
static uint32_t find_next(const struct chain *chain, uint32_t from)
{
	const struct devices *devices = chain->devices;
	uint32_t best = NONE;

	for (uint32_t i = 1; i < devices->n; i++) {
		const uint32_t device = (from + i) % devices->n;
		const struct engine_link *link = &devices->of[device].links[from];

		if (!chain->is_left[device] || link->kind == ENGINE_LINK_NONE)
			continue;
		if (best == NONE || link->rank < devices->of[best].links[from].rank)
			best = device;
	}
	return best;
}

/* All moves to a device: one from the parent, the others from that. */
static void visit(struct chain *chain, uint32_t device, uint32_t parent)
{
	struct multicast_tree *tree = chain->tree;

	chain->head[device] = tree->n;
	for (uint32_t i = 0; i < chain->n; i++)
		if (chain->on[i] == device)
			add(tree, i, tree->n == chain->head[device] ? parent : chain->head[device], device);
	chain->is_left[device] = false;
	chain->n_left--;
	chain->order[chain->n_order++] = device;
}

static uint32_t first_left(const struct chain *chain)
{
	uint32_t device = 0;

	while (!chain->is_left[device])
		device++;
	return device;
}

/* The source's device, the one nearest to it, or that of the first destination on a device. */
static void visit_first(struct chain *chain)
{
	const uint32_t src_on = chain->src_on;
	uint32_t device = src_on, i = 0;

	if (src_on != DEVICE_ANY && !chain->is_left[src_on])
		device = find_next(chain, src_on);
	while (src_on == DEVICE_ANY && chain->on[i] == DEVICE_ANY)
		i++;
	if (src_on == DEVICE_ANY)
		device = chain->on[i];
	visit(chain, device == NONE ? first_left(chain) : device, MULTICAST_SOURCE);
}

/* From the end of the chain; where that is not reached, from the last device before it that is, or from the
 * source. What nothing reaches is left to the end of the chain, which will say so. */
static void visit_next(struct chain *chain)
{
	const uint32_t last = chain->order[chain->n_order - 1];
	uint32_t parent = chain->head[last], device = NONE;

	for (uint32_t i = chain->n_order; i-- > 0 && device == NONE;) {
		device = find_next(chain, chain->order[i]);
		if (device != NONE)
			parent = chain->head[chain->order[i]];
	}
	if (device == NONE && chain->src_on != DEVICE_ANY) {
		device = find_next(chain, chain->src_on);
		if (device != NONE)
			parent = MULTICAST_SOURCE;
	}
	visit(chain, device == NONE ? first_left(chain) : device, parent);
}

/* From the first device's; from a source on a device, which runs it; or from the first of them. */
static void add_hosts(struct chain *chain)
{
	struct multicast_tree *tree = chain->tree;
	const uint32_t device = chain->n_order ? chain->order[0] : chain->src_on;
	uint32_t parent = chain->n_order ? 0 : MULTICAST_SOURCE;

	for (uint32_t i = 0; i < chain->n; i++) {
		if (chain->on[i] != DEVICE_ANY)
			continue;
		add(tree, i, parent, device);
		if (device == DEVICE_ANY)
			parent = 0;
	}
}

void multicast_plan_tree(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret)
{
	struct chain chain = { .devices = devices, .on = on, .n = n, .src_on = src_on, .tree = ret };

	for (uint32_t i = 0; i < n; i++) {
		if (on[i] == DEVICE_ANY || chain.is_left[on[i]])
			continue;
		chain.is_left[on[i]] = true;
		chain.n_left++;
	}
	ret->n = 0;
	if (chain.n_left > 0)
		visit_first(&chain);
	while (chain.n_left > 0)
		visit_next(&chain);
	ret->is_chain = chain.n_order > 1;
	add_hosts(&chain);
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

static uint32_t count_chunks(uint64_t bytes, uint64_t chunk_bytes, uint32_t n_destinations)
{
	const uint64_t n = bytes / chunk_bytes, most = MULTICAST_MOVES / n_destinations;
	const uint64_t least = n < MULTICAST_CHUNKS ? n : MULTICAST_CHUNKS;

	return (uint32_t)(least < most ? least : most);
}

struct multicast_cut multicast_plan_cut(int rank, const int64_t *shape, const bool *may, uint64_t bytes,
                                        uint64_t chunk_bytes, uint32_t n_destinations)
{
	const uint32_t wanted = count_chunks(bytes, chunk_bytes, n_destinations);
	struct multicast_cut cut = { .n = 1 };
	int64_t most = 1;

	for (int d = 0; d < rank && most < wanted; d++) {
		if ((may && !may[d]) || shape[d] <= most)
			continue;
		cut.dim = d;
		most = shape[d];
	}
	if (wanted < 2 || most < 2)
		return cut;
	cut.rows = (most + wanted - 1) / wanted;
	cut.n = (uint32_t)((most + cut.rows - 1) / cut.rows);
	return cut;
}
