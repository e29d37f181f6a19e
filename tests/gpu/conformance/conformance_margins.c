/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_margins.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

void margins_count(struct margins *margins, const struct window *window, const unsigned char *roles,
                   const unsigned char *before, const unsigned char *got)
{
	uint64_t most[BYTE_ROLE_COUNT] = { 0 };
	bool has[BYTE_ROLE_COUNT] = { false };

	for (uint64_t first = window->first, end; first < window->end; first = end) {
		enum role role = (enum role)roles[first];

		for (end = first; end < window->end && roles[end] == role; end++)
			;
		has[role] = true;
		for (uint64_t at = first; at < end; at++) {
			uint64_t far = role == ROLE_BEFORE_TILE ? end - at : at - first + 1;

			if (got[at] != before[at] && far > most[role])
				most[role] = far;
		}
	}
	for (int role = 0; role < BYTE_ROLE_COUNT; role++) {
		margins->role[role].stores += has[role];
		margins->role[role].touched += most[role] > 0;
		if (most[role] > margins->role[role].most)
			margins->role[role].most = most[role];
	}
}

void margins_print(const struct margins *margins)
{
	for (int role = ROLE_PAST_EXTENT; role < BYTE_ROLE_COUNT; role++)
		printf("# stores with bytes %s, to the next multiple of 16: %" PRIu64 ", of which %" PRIu64
		       " wrote there, at most %" PRIu64 " bytes\n",
		       byte_role_names[role], margins->role[role].stores, margins->role[role].touched,
		       margins->role[role].most);
}
