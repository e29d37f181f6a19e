/* SPDX-License-Identifier: Apache-2.0 */
/* The links between the devices. SOFTGPU_LINKS is a comma-separated list of PAIR:LINK. PAIR is A-B, or "all"
 * for every pair, which has to come first. LINK is a number of NVLinks from 1 to 18, "pcie" (slower than any
 * NVLink and without atomics), or "none" (no peer access). A pair that is not listed has 18 NVLinks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu.h"

#define MOST_LINKS 18

static int links[MOST_DEVICES][MOST_DEVICES]; /* LINK_NONE, LINK_PCIE, or LINK_PCIE + number of NVLinks */

static void set_all(int link)
{
	for (int a = 0; a < MOST_DEVICES; a++)
		for (int b = 0; b < MOST_DEVICES; b++)
			links[a][b] = link;
}

/* Parses the decimal number in [text, end). Returns a negative number if there is none. */
static long read_number(const char *text, const char *end)
{
	char *rest;
	long n = *text >= '0' && *text <= '9' ? strtol(text, &rest, 10) : -1;
	return n >= 0 && rest == end ? n : -1;
}

static int read_link(const char *text)
{
	long n = read_number(text, text + strlen(text));
	if (strcmp(text, "none") == 0)
		return LINK_NONE;
	if (strcmp(text, "pcie") == 0)
		return LINK_PCIE;
	return n >= 1 && n <= MOST_LINKS ? LINK_PCIE + (int)n : -1;
}

/* Returns what is wrong with the item, or NULL. seen holds the pairs listed so far. */
static const char *read_item(char *item, bool is_first, device_set *seen)
{
	char *colon = strchr(item, ':'), *dash = strchr(item, '-');
	int link = colon ? read_link(colon + 1) : -1;
	if (!colon)
		return "it is not PAIR:LINK";
	if (link < 0)
		return "a link is 1 to 18, pcie or none";
	if (strncmp(item, "all:", 4) == 0) {
		set_all(link);
		return is_first ? NULL : "all comes first";
	}
	long a = dash && dash < colon ? read_number(item, dash) : -1;
	long b = a >= 0 ? read_number(dash + 1, colon) : -1;
	if (a < 0 || b < 0)
		return "a pair is A-B or all";
	if (a == b)
		return "a device has no link to itself";
	if (a >= devices_count() || b >= devices_count())
		return "there is no such device";
	if (seen[a] & device_bit((int)b))
		return "the pair was said before";
	seen[a] |= device_bit((int)b);
	seen[b] |= device_bit((int)a);
	links[a][b] = links[b][a] = link;
	return NULL;
}

bool links_init(void)
{
	const char *text = getenv("SOFTGPU_LINKS"), *wrong = NULL;
	device_set seen[MOST_DEVICES] = { 0 };
	char *list = text ? strdup(text) : NULL, *at = list, *item;
	set_all(LINK_PCIE + MOST_LINKS);
	for (bool is_first = true; list && *list && !wrong && (item = strsep(&at, ",")); is_first = false)
		if ((wrong = read_item(item, is_first, seen)))
			fprintf(stderr, "softgpu: SOFTGPU_LINKS: '%s': %s\n", item, wrong);
	free(list);
	return !wrong;
}

int link_between(int a, int b)
{
	return links[a][b];
}

/* Returns how many distinct kinds of link on the host are faster. */
int link_rank(int a, int b)
{
	bool is_there[LINK_PCIE + MOST_LINKS + 1] = { false };
	int rank = 0;
	for (int i = 0; i < devices_count(); i++)
		for (int j = 0; j < i; j++)
			is_there[links[i][j]] = true;
	for (int link = links[a][b] + 1; link <= LINK_PCIE + MOST_LINKS; link++)
		rank += is_there[link];
	return rank;
}
