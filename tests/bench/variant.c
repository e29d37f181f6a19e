/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the engine's own cost model, for the interior of a plan. */
#include "variant.h"

#include <string.h>

#include "kernels/cpu/move/move.h"
#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/run/tuning.h"

static void choose(const struct cpu_plan *plan, uint64_t bytes, int candidate, struct cpu_choice *ret)
{
	const struct cpu_tuning tuning = cpu_tuning_get();
	const struct cpu_case c = { .piece_bytes = tuning.piece_most,
		                    .tiled_bytes = tuning.tiled_bytes,
		                    .stream = bytes / 2 >= (uint64_t)tuning.stream_bytes };

	if (candidate < 0)
		cpu_choose(ret, &plan->interior, &c);
	else
		cpu_choose_candidate(ret, &plan->interior, candidate, c.piece_bytes);
}

double variant_predict(const struct cpu_plan *plan, uint64_t bytes, int candidate)
{
	struct cpu_choice choice;

	choose(plan, bytes, -1, &choice);
	if (choice.cost > 0)
		choose(plan, bytes, candidate, &choice);
	return choice.cost > 0 ? 1 / choice.cost : 0;
}

bool variant_is_alike(const struct cpu_plan *plan, uint64_t bytes, int a, int b)
{
	size_t size = (size_t)plan->interior.rank * sizeof(int64_t);
	struct cpu_choice one, other;

	if (a == b || !cpu_strategy_tiles.probe(&plan->interior))
		return true;
	/* The engine may have chosen a different candidate for each subregion. */
	if (plan->n_subregions > 1 && (a < 0 || b < 0))
		return false;
	choose(plan, bytes, a, &one);
	choose(plan, bytes, b, &other);
	if (one.candidate == 0 || other.candidate == 0)
		return one.candidate == other.candidate;
	return !memcmp(one.tile.n, other.tile.n, size) && !memcmp(one.tile.piece, other.tile.piece, size);
}
