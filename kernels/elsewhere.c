/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the planners without an engine: the CPU's as it is, the GPU's with the properties of an H200. */
#include "elsewhere.h"

#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cuda/strategy/plan.h"
#include "plan_key.h"

static const char *const engines[] = { "cpu", "cuda" };

bool explanation_is_of(const char *engine, size_t len, const char **ret_name)
{
	for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
		if (strlen(engines[i]) == len && !memcmp(engines[i], engine, len)) {
			*ret_name = engines[i];
			return true;
		}
	return false;
}

void explanation_elsewhere(struct engine_explanation *ret, const char *engine,
                           const struct transform *transform, uint64_t dst, uint64_t src)
{
	const struct plan_places places = plan_places(dst, src);
	const struct plan_facts h200 = plan_facts_of_h200();
	struct plan_facts facts;
	struct plan plan;

	if (!strcmp(engine, "cpu")) {
		cpu_explain(ret, transform, plan_places_align(places));
		return;
	}
	facts = plan_facts_at(&h200, places);
	plan_init(&plan, transform, &facts);
	plan_explain(ret, &plan, transform, &facts);
}
