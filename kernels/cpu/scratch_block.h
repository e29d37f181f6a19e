/* A padded destination of short rows, cut into bands that fit scratch.
 *
 * Its slabs share lines, all the more the shorter the rows are. Band by band they are made in scratch, and
 * each line is written once, past the cache. A band is a stretch of one axis and all of those inside it,
 * none of them and none outside padded but those inside; the destination is contiguous there.
 */
#ifndef KERNELS_CPU_BAND_H
#define KERNELS_CPU_BAND_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/plan/transform.h"
#include "move.h"

struct bands {
	const struct transform *transform;
	int axis;
	int64_t step;  /* of the axis; a band's extent */
	int64_t bytes; /* of one step */
	uint64_t n;
};

/* False when the transform is better off slab by slab, or cannot be cut. It must outlive *ret. */
bool bands_init(struct bands *ret, const struct transform *transform);

/* Makes band i and writes it. place: of the whole destination and source. scratch as for move_run. */
void bands_run(const struct bands *bands, uint64_t i, const struct cpu_isa *isa,
               const struct move_place *place, char *scratch);

#endif
