/* SPDX-License-Identifier: Apache-2.0 */
/* This table lists all strategies by their numbers. */
#include "strategy.h"

const struct strategy *const strategies[STRATEGY_COUNT] = {
#define STRATEGY(name) [STRATEGY_##name] = &strategy_##name,
#include "strategies.def"
};
