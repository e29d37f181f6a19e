/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options of a conversion, and turns --mean and --std into scale and bias. */
#include "cast_args.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/tmactl/args.h"

/* ---- One option --------------------------------------------------------------------------------------- */

static int set_list(struct cast_list *list, const char *name, const char *text, struct failure *f)
{
	size_t most = 1;

	for (const char *c = text; *c; c++)
		most += *c == ',';
	free(list->v);
	*list = (struct cast_list){ .text = text, .v = calloc(most, sizeof *list->v) };
	if (!list->v)
		return fail(f, EXIT_FAILED, "out of memory");
	for (const char *at = text;; at++) {
		int rc = args_number(&at, &list->v[list->n++]);

		if (rc || (*at && *at != ','))
			return args_no_number(
			    rc, name, text,
			    "a number or a quotient, or one for each channel, such as 1/255 or 0.5,0.25,2",
			    f);
		if (!*at)
			return 0;
	}
}

static int set_cast(struct cast_args *args, const char *text, struct failure *f)
{
	args->has_cast = true;
	if (!strcmp(text, "saturate"))
		args->cast = TMA_CAST_SATURATE;
	else if (!strcmp(text, "exact"))
		args->cast = TMA_CAST_EXACT;
	else if (!strcmp(text, "ieee"))
		args->cast = TMA_CAST_IEEE;
	else
		return fail(f, EXIT_USAGE, "--cast %s: expected one of saturate, exact, ieee", text);
	return 0;
}

static int set_axis(struct cast_args *args, const char *text, struct failure *f)
{
	const char *digit = *text == '-' ? text + 1 : text;
	long axis;
	char *end;

	errno = 0;
	axis = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*digit) || *end || errno || axis < INT_MIN || axis > INT_MAX)
		return fail(
		    f, EXIT_USAGE,
		    "--channel-axis %s: expected a dimension's number, such as 1; negative ones count from "
		    "the last",
		    text);
	args->axis_text = text;
	args->axis = (int)axis;
	return 0;
}

static int set_least(struct amax_args *amax, const char *text, struct failure *f)
{
	const char *at = text;
	int rc = args_number(&at, &amax->least);

	if (rc || *at || !(amax->least >= 0))
		return args_no_number(rc, "least", text, "a number of 0 or more", f);
	return 0;
}

/* Parses an option of the group amax. */
static int set_amax(struct amax_args *amax, int opt, const char *name, const char *text, struct failure *f)
{
	if (opt == OPT_AMAX_BLOCK) {
		amax->block_text = text;
		return args_block(amax->block, &amax->n_block, text, f);
	}
	amax->given = name;
	if (opt == OPT_LEAST)
		return set_least(amax, text, f);
	if (opt == OPT_SCALE_DTYPE) {
		amax->dtype_text = text;
		return args_dtype(&amax->dtype, "--scale-dtype", text, f);
	}
	amax->power_of_two = true;
	return 0;
}

int cast_args_set(struct cast_args *args, int opt, const char *name, const char *text, struct failure *f)
{
	args->given = name;
	switch (opt) {
	case OPT_OUTPUT_DTYPE:
	case OPT_TO_DTYPE:
		return args_type(&args->type, name, "the output", text, f);
	case OPT_CAST:
		return set_cast(args, text, f);
	case OPT_SCALE:
		return set_list(&args->scale, name, text, f);
	case OPT_BIAS:
		return set_list(&args->bias, name, text, f);
	case OPT_MEAN:
		return set_list(&args->mean, name, text, f);
	case OPT_STD:
		return set_list(&args->std, name, text, f);
	case OPT_CHANNEL_AXIS:
		return set_axis(args, text, f);
	case OPT_AMAX_BLOCK:
	case OPT_POWER_OF_TWO:
	case OPT_LEAST:
	case OPT_SCALE_DTYPE:
		return set_amax(&args->amax, opt, name, text, f);
	default:
		return -1;
	}
}

/* ---- All of them -------------------------------------------------------------------------------------- */

/* Checks that two lists that are used together have the same length. A single number goes with any list. */
static int check_lengths(const struct cast_list *a, const char *a_name, const struct cast_list *b,
                         const char *b_name, struct failure *f)
{
	if (a->n <= 1 || b->n <= 1 || a->n == b->n)
		return 0;
	return fail(f, EXIT_USAGE, "--%s has %zu numbers, but --%s has %zu", a_name, a->n, b_name, b->n);
}

/* Returns number i of a list. A single number stands for every channel, and `none` for a list that was not
 * given. */
static double list_at(const struct cast_list *list, size_t i, double none)
{
	return !list->n ? none : list->v[list->n == 1 ? 0 : i];
}

/* Computes scale and bias from mean and std: (x - mean) / std = x * (1 / std) + -mean / std */
static int normalize(struct cast_args *args, struct failure *f)
{
	const struct cast_list *mean = &args->mean, *std = &args->std;
	const size_t n = mean->n > std->n ? mean->n : std->n;

	for (size_t i = 0; i < std->n; i++)
		if (std->v[i] == 0)
			return fail(f, EXIT_USAGE, "--std %s: a standard deviation of 0 cannot be divided by",
			            std->text);
	if (std->n) {
		args->scale = (struct cast_list){ std->text, std->n, calloc(std->n, sizeof *std->v) };
		for (size_t i = 0; args->scale.v && i < std->n; i++)
			args->scale.v[i] = 1 / std->v[i];
	}
	if (mean->n) {
		args->bias = (struct cast_list){ mean->text, n, calloc(n, sizeof *mean->v) };
		for (size_t i = 0; args->bias.v && i < n; i++)
			args->bias.v[i] = -list_at(mean, i, 0) / list_at(std, i, 1);
	}
	if ((std->n && !args->scale.v) || (mean->n && !args->bias.v))
		return fail(f, EXIT_FAILED, "out of memory");
	return 0;
}

/* Checks the options of the group amax. other is an option that gives a scale or a bias, which cannot be
 * combined with them; NULL: none was given. */
static int check_amax(struct amax_args *amax, const char *other, struct failure *f)
{
	if (amax->given && !amax->block_text)
		return fail(f, EXIT_USAGE, "--%s: no scales are computed; --amax-block says for which blocks",
		            amax->given);
	if (amax->block_text && other)
		return fail(f, EXIT_USAGE,
		            "--%s beside --amax-block: elements are multiplied by the inverses of the scales "
		            "that are computed, and nothing is added",
		            other);
	if (!amax->dtype_text)
		amax->dtype = TMA_FLOAT32;
	if (amax->dtype != TMA_FLOAT32 && (amax->dtype != TMA_UINT8 || !amax->power_of_two))
		return fail(f, EXIT_USAGE,
		            "--scale-dtype %s: scales are float32, or with --power-of-two uint8",
		            amax->dtype_text);
	return 0;
}

int cast_args_check(struct cast_args *args, struct failure *f)
{
	const char *normal = args->mean.text ? "mean" : args->std.text ? "std" : NULL;
	const char *plain = args->scale.text ? "scale" : args->bias.text ? "bias" : NULL;

	if (normal && plain)
		return fail(f, EXIT_USAGE,
		            "--%s beside --%s: the output is either (x - mean) / std or x * scale + bias",
		            normal, plain);
	if (check_lengths(&args->scale, "scale", &args->bias, "bias", f) < 0 ||
	    check_lengths(&args->mean, "mean", &args->std, "std", f) < 0)
		return -1;
	if (args->axis_text && args->scale.n <= 1 && args->bias.n <= 1 && args->mean.n <= 1 &&
	    args->std.n <= 1)
		return fail(f, EXIT_USAGE,
		            "--channel-axis %s: there is no list with a number for each channel",
		            args->axis_text);
	if (check_amax(&args->amax, normal ? normal : plain, f) < 0)
		return -1;
	return normal ? normalize(args, f) : 0;
}

void cast_args_deinit(struct cast_args *args)
{
	free(args->scale.v);
	free(args->bias.v);
	free(args->mean.v);
	free(args->std.v);
	*args = (struct cast_args){ 0 };
}
