/* SPDX-License-Identifier: Apache-2.0 */
/* Small numbers that are in use once each: the next one is one that was given back, if there is any. */
#ifndef KERNELS_PROCESS_NUMBERS_H
#define KERNELS_PROCESS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Zeroed at first. */
struct numbers {
	uint32_t next;  /* that was never in use */
	uint32_t n;     /* given back */
	uint32_t room;  /* for all that may be */
	uint32_t *back; /* those */
};

/* false: out of memory. */
static inline bool numbers_take(struct numbers *numbers, uint32_t *ret)
{
	if (numbers->n == 0 && numbers->next == numbers->room) {
		const uint32_t room = numbers->room ? 2 * numbers->room : 64;
		uint32_t *grown = realloc(numbers->back, room * sizeof *grown);

		if (!grown)
			return false;
		numbers->back = grown;
		numbers->room = room;
	}
	*ret = numbers->n > 0 ? numbers->back[--numbers->n] : numbers->next++;
	return true;
}

static inline void numbers_give(struct numbers *numbers, uint32_t number)
{
	numbers->back[numbers->n++] = number;
}

static inline void numbers_deinit(struct numbers *numbers)
{
	free(numbers->back);
	*numbers = (struct numbers){ 0 };
}

#endif
