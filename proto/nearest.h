/* SPDX-License-Identifier: Apache-2.0 */
/* The distance between two names, to suggest the one that the user may have meant. A header of its own,
 * since the daemon and programs that only link the library have no object in common. */
#ifndef PROTO_NEAREST_H
#define PROTO_NEAREST_H

#include <string.h>

#define NEAREST_BYTES 64 /* of the second name, with its end; what is longer is cut */
#define NEAREST_LIMIT 4  /* names this far apart mean different things */

/* How many bytes of a would have to be changed, added or taken away to make it b; _ is taken for -. */
static inline unsigned nearest_distance(const char *a, const char *b)
{
	unsigned row[NEAREST_BYTES];
	size_t n = strnlen(b, NEAREST_BYTES - 1);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; i++, a++) {
		unsigned corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			unsigned change = corner + ((*a == '_' ? '-' : *a) != b[j - 1]);

			corner = row[j];
			row[j] = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
			if (change < row[j])
				row[j] = change;
		}
	}
	return row[n];
}

#endif
