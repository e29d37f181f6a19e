/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses between the engines of this build. */
#include "engines.h"

#include <stdio.h>

static int open_cuda(struct chosen_engine *ret, const struct engine_openers *openers,
                     const struct engine_options *options, struct error *err)
{
	if (!openers->cuda)
		return error_set(err, STATUS_UNSUPPORTED, "this build has the cpu engine only");
	return openers->cuda(&ret->engine, options, err);
}

static int open_any(struct chosen_engine *ret, const struct engine_openers *openers,
                    const struct engine_options *options, struct error *err)
{
	struct error why;

	if (open_cuda(ret, openers, options, &why) == 0)
		return 0;
	snprintf(ret->note, sizeof ret->note, "%s", why.message);
	return openers->cpu(&ret->engine, options, err);
}

int engines_open(struct chosen_engine *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err)
{
	struct error why;
	int r;

	*ret = (struct chosen_engine){ 0 };
	switch (choice) {
	case ENGINE_CHOICE_CPU:
		return openers->cpu(&ret->engine, options, err);
	case ENGINE_CHOICE_CUDA:
		r = open_cuda(ret, openers, options, &why);
		return r < 0 ? error_set(err, r, "--engine=cuda: %s", why.message) : 0;
	case ENGINE_CHOICE_AUTO:
		break;
	}
	return open_any(ret, openers, options, err);
}
