/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which destination of a multicast is made from which, and where destinations are cut. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "daemon/memory/devices.h"
#include "daemon/jobs/links.h"

#define DEVICES 5
#define HOST    DEVICE_ANY

/* Each device has a row of links, one character a device: '.' is no link, '0' and up is a link of that
 * rank. */
struct row {
	char name[48];
	char links[DEVICES][DEVICES + 1];
	uint32_t n;
	uint32_t on[8];
	uint32_t src_on;
	/* Each move is written as its destination, '<', the destination that it reads or 's' for the source,
	 * '@', and the device that moves it or 'h' for the host. */
	char tree[64];
	bool is_star;
};

#define ALL                                                 \
	{                                                   \
		"00000", "00000", "00000", "00000", "00000" \
	}
#define LINE                                                \
	{                                                   \
		"00...", "000..", ".000.", "..000", "...00" \
	}
#define PAIRS                                               \
	{                                                   \
		"00112", "00112", "11002", "11002", "22220" \
	}

ParameterizedTestParameters(multicast, trees)
{
	static struct row rows[] = {
		{ "from the host", ALL, 3, { 2, 0, 4 }, HOST, "0<s@2 2<0@4 1<2@0", true },
		{ "from a device with a destination", ALL, 3, { 2, 3, 4 }, 3, "1<s@3 2<1@4 0<2@2", true },
		{ "from a device without", ALL, 2, { 1, 3 }, 2, "1<s@3 0<1@1", true },
		{ "several on a device", ALL, 4, { 1, 2, 1, 2 }, 1, "0<s@1 2<0@1 1<0@2 3<1@2", true },
		{ "and in host memory", ALL, 4, { HOST, 1, HOST, 2 }, HOST, "1<s@1 3<1@2 0<1@1 2<1@1", true },
		{ "to the host alone", ALL, 2, { HOST, HOST }, 3, "0<s@3 1<s@3", true },
		{ "from host to host", ALL, 3, { HOST, HOST, HOST }, HOST, "0<s@h 1<0@h 2<0@h", true },
		{ "fast links first", PAIRS, 5, { 0, 1, 2, 3, 4 }, 2, "2<s@2 3<2@3 0<3@0 1<0@1 4<1@4", true },
		{ "a line from its end", LINE, 4, { 3, 1, 2, 4 }, 0, "1<s@1 2<1@2 0<2@3 3<0@4", false },
		{ "a line from its middle", LINE, 4, { 0, 1, 3, 4 }, 2, "2<s@3 3<2@4 1<s@1 0<1@0", false },
		{ "a line with a gap", LINE, 2, { 1, 3 }, 0, "0<s@1 1<0@3", false },
		{ "a source that nobody reaches",
		  { "0....", ".0000", ".0000", ".0000", ".0000" },
		  2,
		  { 2, 3 },
		  0,
		  "0<s@2 1<0@3",
		  false },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

static void make_links(struct devices *devices, const struct row *row)
{
	memset(devices, 0, sizeof *devices);
	devices->n = DEVICES;
	for (int i = 0; i < DEVICES; i++)
		for (int j = 0; j < DEVICES; j++)
			if (i != j && row->links[i][j] != '.')
				devices->of[i].links[j] =
				    (struct engine_link){ .kind = ENGINE_LINK_NVLINK,
					                  .rank = (uint32_t)(row->links[i][j] - '0') };
}

static void say(const struct multicast_tree *tree, char text[256])
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < tree->n; i++) {
		const struct multicast_move *move = &tree->move[i];

		len += (size_t)sprintf(text + len, "%s%u<", i ? " " : "", move->dst);
		if (move->parent == MULTICAST_SOURCE)
			len += (size_t)sprintf(text + len, "s@");
		else
			len += (size_t)sprintf(text + len, "%u@", tree->move[move->parent].dst);
		if (move->device == DEVICE_ANY)
			len += (size_t)sprintf(text + len, "h");
		else
			len += (size_t)sprintf(text + len, "%u", move->device);
	}
}

ParameterizedTest(struct row *row, multicast, trees)
{
	struct multicast_tree tree;
	struct devices devices;
	char text[256];

	make_links(&devices, row);
	multicast_plan_tree(&devices, row->n, row->on, row->src_on, &tree);
	say(&tree, text);
	cr_assert_str_eq(text, row->tree, "%s: %s", row->name, text);
	for (uint32_t i = 0; i < tree.n; i++)
		cr_assert(tree.move[i].parent == MULTICAST_SOURCE || tree.move[i].parent < i, "%s",
		          row->name);
	cr_assert_eq(multicast_plan_star(&devices, row->n, row->on, row->src_on, &tree), row->is_star, "%s",
	             row->name);
}

struct cut_row {
	char name[48];
	int rank;
	int64_t shape[4];
	bool may_not[4];
	uint64_t bytes;
	uint32_t n_destinations;
	struct multicast_cut cut;
};

#define MIB (UINT64_C(1) << 20)

ParameterizedTestParameters(multicast, cuts)
{
	static struct cut_row rows[] = {
		{ "of the outermost", 2, { 1024, 1024 }, { 0 }, 8 * MIB, 2, { 0, 128, 8 } },
		{ "a rest", 2, { 1001, 1024 }, { 0 }, 8 * MIB, 2, { 0, 126, 8 } },
		{ "of the next, as the first is short", 3, { 2, 1024, 8 }, { 0 }, 8 * MIB, 2, { 1, 128, 8 } },
		{ "of the longest, as all are short", 3, { 2, 5, 3 }, { 0 }, 8 * MIB, 2, { 1, 1, 5 } },
		{ "not where it must not be", 2, { 1024, 64 }, { true }, 8 * MIB, 2, { 1, 8, 8 } },
		{ "nowhere", 2, { 1024, 64 }, { true, true }, 8 * MIB, 2, { 0, 0, 1 } },
		{ "of what is small", 1, { 1024 }, { 0 }, 2 * MIB - 1, 2, { 0, 0, 1 } },
		{ "of a number", 0, { 0 }, { 0 }, 8 * MIB, 2, { 0, 0, 1 } },
		{ "of what is large",
		  1,
		  { 1 << 20 },
		  { 0 },
		  1000 * MIB,
		  8,
		  { 0, 1 << 14, MULTICAST_CHUNKS } },
		{ "for many", 1, { 1 << 20 }, { 0 }, 1000 * MIB, 32, { 0, 1 << 16, MULTICAST_MOVES / 32 } },
	};

	return cr_make_param_array(struct cut_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct cut_row *row, multicast, cuts)
{
	struct multicast_cut cut;
	bool may[4];

	for (int d = 0; d < 4; d++)
		may[d] = !row->may_not[d];
	cut = multicast_plan_cut(row->rank, row->shape, may, row->bytes, MIB, row->n_destinations);
	cr_assert_eq(cut.n, row->cut.n, "%s: %u chunks", row->name, cut.n);
	if (cut.n == 1)
		return;
	cr_assert_eq(cut.dim, row->cut.dim, "%s: dimension %d", row->name, cut.dim);
	cr_assert_eq(cut.rows, row->cut.rows, "%s: %ld rows", row->name, (long)cut.rows);
	cr_assert(cut.rows * cut.n >= row->shape[cut.dim] && cut.rows * (cut.n - 1) < row->shape[cut.dim],
	          "%s", row->name);
}
