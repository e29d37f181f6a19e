/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether to use colours, once, and maps them to escape sequences. For one thread. */
#include "colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum colour_when when;

void colour_set(enum colour_when wanted)
{
	when = wanted;
}

static int is_wanted(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

const char *colour(enum colour which)
{
	static const char *const codes[COLOUR_COUNT] = {
		[COLOUR_NONE] = "\033[0m",    [COLOUR_BOLD] = "\033[1m", [COLOUR_DIM] = "\033[2m",
		[COLOUR_GOOD] = "\033[32m",   [COLOUR_BAD] = "\033[31m", [COLOUR_HINT] = "\033[36m",
		[COLOUR_REVERSE] = "\033[7m",
	};

	if (when == COLOURS_AUTO)
		when = is_wanted() ? COLOURS_ALWAYS : COLOURS_NEVER;
	return when == COLOURS_ALWAYS ? codes[which] : "";
}
