/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a conversion calculates, in which type, and what becomes of values that do not fit. The
 * rules are those of proto/protocol.md. */
#include "cast_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/print.h"

enum { FLOATING, INTEGER, BOOLEAN };

static int class_of(enum tma_dtype dtype)
{
	const char *name = tma_dtype_name(dtype);

	return dtype == TMA_BOOL                                       ? BOOLEAN
	       : !strncmp(name, "int", 3) || !strncmp(name, "uint", 4) ? INTEGER
	                                                               : FLOATING;
}

static bool is_wide(enum tma_dtype dtype)
{
	return dtype == TMA_FLOAT64 || (class_of(dtype) == INTEGER && tma_dtype_size(dtype) >= 4);
}

static const char *formula_of(const struct tma_conversion *c)
{
	const bool scales = c->scale || c->scale_tensor, adds = c->bias || c->bias_tensor;

	if (c->amax)
		return "x * (1 / scale)";
	return scales && adds ? "x * scale + bias" : scales ? "x * scale" : adds ? "x + bias" : "x";
}

/* Returns whether elements are converted without arithmetic. There must be neither scale nor bias, and the
 * elements must be booleans or integers that become booleans or integers. Integers of 64 bits may become any
 * type. */
static bool is_one_step(const struct cast *cast, const struct tma_conversion *c)
{
	return !strcmp(formula_of(c), "x") && class_of(cast->from) != FLOATING &&
	       (class_of(cast->to) != FLOATING || tma_dtype_size(cast->from) == 8);
}

/* Returns the name of the type in which values are calculated, or NULL if nothing is calculated. */
static const char *arithmetic_of(const struct cast *cast, const struct tma_conversion *c)
{
	if (is_one_step(cast, c))
		return NULL;
	return is_wide(cast->from) || is_wide(cast->to) ? "float64" : "float32";
}

/* Returns what happens to values beyond the range of the type. Not for an exact cast, which fails. */
static const char *outcome_of(const struct cast *cast, const struct tma_conversion *c)
{
	if (c->cast == TMA_CAST_IEEE && class_of(cast->to) == FLOATING)
		return cast->to == TMA_FLOAT8_E4M3FN ? "become NaN" : "become infinity";
	if (c->cast == TMA_CAST_IEEE && class_of(cast->to) == INTEGER && !arithmetic_of(cast, c))
		return "keep their low bits";
	return "become its nearest";
}

static const char *rounding_of(enum tma_dtype to)
{
	static const char *const words[] = {
		[FLOATING] = "rounded to nearest even",
		[INTEGER] = "without what lies behind the point",
		[BOOLEAN] = "true where it is not 0",
	};

	return words[class_of(to)];
}

static void print_operand(const char *name, const struct tma_number *number, const struct tma_tensor *tensor,
                          int rank)
{
	if (number)
		printf("%-8s %.9g\n", name, number->re);
	if (tensor)
		printf("%-8s a number for each of the %" PRId64
		       " elements of dimension %d of the permuted source\n",
		       name, tensor->shape[0], rank - tensor->rank);
}

/* Prints how many scales are computed, the extents of their blocks, and the rule. */
static void print_scales(const struct tma_amax *amax, const char *to, int column)
{
	const struct tma_tensor *scale = amax->scale;
	char text[1024], least[40] = "";
	int len = 0;

	if (amax->least > 0)
		snprintf(least, sizeof least, ", at least %.9g,", amax->least);
	len += snprintf(text, sizeof text, "%s [", tma_dtype_name(scale->dtype));
	for (int d = 0; d < scale->rank; d++)
		len += snprintf(text + len, sizeof text - (size_t)len, "%s%" PRId64, d ? ", " : "",
		                scale->shape[d]);
	len += snprintf(text + len, sizeof text - (size_t)len, "], for blocks of [");
	for (int d = 0; d < scale->rank; d++)
		len += snprintf(text + len, sizeof text - (size_t)len, "%s%" PRId64, d ? ", " : "",
		                amax->block[d]);
	snprintf(text + len, sizeof text - (size_t)len,
	         "]: the largest magnitude of a block%s divided by the largest finite %s%s", least, to,
	         amax->power_of_two ? ", rounded up to a power of two" : "");
	print_wrapped(text, column, printf("%-8s ", "scale"));
}

void cast_print(const struct cast *cast, const struct transform_request *q, int column)
{
	const struct tma_conversion *c = &q->cast.conversion;
	const char *in = cast->is ? arithmetic_of(cast, c) : NULL;
	char text[400];
	int len;

	if (!cast->is)
		return;
	len = snprintf(text, sizeof text, "%s to %s: %s", tma_dtype_name(cast->from),
	               tma_dtype_name(cast->to), formula_of(c));
	if (in)
		len += snprintf(text + len, sizeof text - (size_t)len, ", %sin %s, then %s",
		                strlen(formula_of(c)) > 1 ? "each step rounded " : "", in,
		                rounding_of(cast->to));
	else if (class_of(cast->to) == FLOATING)
		len += snprintf(text + len, sizeof text - (size_t)len, ", %s", rounding_of(cast->to));
	if (c->cast == TMA_CAST_EXACT)
		snprintf(text + len, sizeof text - (size_t)len,
		         "; exact: it fails if any value is not one of %s", tma_dtype_name(cast->to));
	else
		snprintf(text + len, sizeof text - (size_t)len, "; %s: values beyond the range of %s %s",
		         c->cast == TMA_CAST_IEEE ? "ieee" : "saturate", tma_dtype_name(cast->to),
		         outcome_of(cast, c));
	print_wrapped(text, column, printf("%-8s ", "convert"));
	print_operand("scale", c->scale, c->scale_tensor, q->src.rank + q->src_split.n);
	if (c->amax)
		print_scales(c->amax, tma_dtype_name(cast->to), column);
	print_operand("bias", c->bias, c->bias_tensor, q->src.rank + q->src_split.n);
}
