/* SPDX-License-Identifier: Apache-2.0 */
/* `none` is for windows that read no element of the source, so that only the border is written. */
#include "strategy_launch.h"

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)plan;
	(void)mode;
	return 1.15; /* writes alone */
}

#ifdef HAVE_CUDA
static int launch(const struct strategy_launch *launch, struct error *err)
{
	(void)launch;
	(void)err;
	return 0;
}
#endif

const struct strategy strategy_none = {
	.name = "none",
	.family = FAMILY_FILL,
	.turn = STRATEGY_NEVER,
	.cost = cost,
	.launch = WITH_CUDA(launch),
};
