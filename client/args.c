/* Strict parsers: a value is taken whole or refused with its flag and text. */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* An integer that ends before the byte stop, a comma or the end; *text moves there. */
static bool next_int(const char **text, char stop, int64_t *ret)
{
	const char *digit = **text == '-' || **text == '+' ? *text + 1 : *text;
	char *end;

	if (!isdigit((unsigned char)*digit))
		return false;
	errno = 0;
	*ret = strtoll(*text, &end, 10);
	if (errno || (*end && *end != stop))
		return false;
	*text = end;
	return true;
}

/* A list of integers, or with second of pairs a:b; how many, or -1 when it is none, -2 when it is too
 * long. */
static int parse_list(const char *text, int64_t first[TMA_MAX_RANK], int64_t second[TMA_MAX_RANK])
{
	int n = 0;

	if (!*text)
		return 0;
	for (;; text++) {
		if (n == TMA_MAX_RANK)
			return -2;
		if (!next_int(&text, second ? ':' : ',', &first[n]))
			return -1;
		if (second && (*text++ != ':' || !next_int(&text, ',', &second[n])))
			return -1;
		n++;
		if (!*text)
			return n;
	}
}

static int list_failed(int n, const char *flag, const char *text, const char *form, struct failure *f)
{
	if (n == -2)
		return fail(f, EXIT_USAGE, "%s %s: more than %d dimensions", flag, text, TMA_MAX_RANK);
	return fail(f, EXIT_USAGE, "%s %s: it takes %s", flag, text, form);
}

int args_permute(struct view_args *args, const char *text, struct failure *f)
{
	int64_t perm[TMA_MAX_RANK];
	int n = parse_list(text, perm, NULL);

	for (int d = 0; d < n; d++) {
		if (perm[d] < INT32_MIN || perm[d] > INT32_MAX)
			n = -1;
		else
			args->perm[d] = (int)perm[d];
	}
	if (n < 0)
		return list_failed(n, "--permute", text, "dimensions by number, as 1,0", f);
	args->permute = text;
	args->n_perm = n;
	return 0;
}

int args_pad(struct view_args *args, const char *text, struct failure *f)
{
	int n = parse_list(text, args->before, args->after);

	if (n < 0)
		return list_failed(n, "--pad", text,
		                   "before:after for each dimension of the output, as 1:2,0:0", f);
	args->pad = text;
	args->n_pad = n;
	return 0;
}

int args_mode(struct view_args *args, const char *text, struct failure *f)
{
	int mode = tma_pad_mode_parse(text);

	if (mode < 0)
		return fail(f, EXIT_USAGE, "--mode %s: it is one of constant, edge, reflect, symmetric, wrap",
		            text);
	args->mode = (enum tma_pad_mode)mode;
	return 0;
}

int args_dtype(enum tma_dtype *ret, const char *text, struct failure *f)
{
	int dtype = tma_dtype_parse(text);

	if (dtype < 0)
		return fail(f, EXIT_USAGE, "--dtype %s: no element type; tmactl info lists them", text);
	*ret = (enum tma_dtype)dtype;
	return 0;
}

int args_shape(int64_t shape[TMA_MAX_RANK], int *ret_rank, const char *text, struct failure *f)
{
	int n = parse_list(text, shape, NULL);

	for (int d = 0; d < n; d++)
		if (shape[d] < 0)
			n = -1;
	if (n < 0)
		return list_failed(n, "--shape", text, "extents, none negative, as 64,100", f);
	*ret_rank = n;
	return 0;
}

/* ---- Numbers ---------------------------------------------------------------------------------------- */

static bool parse_integer(struct tma_number *ret, const char *text)
{
	const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
	char *end;

	if (!isdigit((unsigned char)*digits))
		return false;
	errno = 0;
	*ret = (struct tma_number){ .kind = TMA_NUMBER_INT };
	ret->i = strtoll(text, &end, 0);
	if (errno == ERANGE && *text != '-') {
		errno = 0;
		*ret = (struct tma_number){ .kind = TMA_NUMBER_UINT };
		ret->u = strtoull(text, &end, 0);
	}
	return !errno && !*end;
}

static bool parse_complex(struct tma_number *ret, const char *text)
{
	char *end;

	*ret = (struct tma_number){ .kind = TMA_NUMBER_COMPLEX };
	ret->re = strtod(text, &end);
	if (end == text)
		return false;
	if (*end == ',') {
		text = end + 1;
		ret->im = strtod(text, &end);
		return end != text && !*end;
	}
	if (!strcmp(end, "j")) {
		ret->im = ret->re;
		ret->re = 0;
		return true;
	}
	if (*end != '+' && *end != '-')
		return false;
	text = end;
	ret->im = strtod(text, &end);
	return end != text && !strcmp(end, "j");
}

static bool parse_real(struct tma_number *ret, const char *text)
{
	char *end;

	*ret = (struct tma_number){ .kind = TMA_NUMBER_REAL };
	ret->re = strtod(text, &end);
	return end != text && !*end;
}

int args_value(struct tma_number *ret, const char *text, struct failure *f)
{
	bool yes = !strcasecmp(text, "true");

	if (yes || !strcasecmp(text, "false")) {
		*ret = (struct tma_number){ .kind = TMA_NUMBER_INT, .i = yes };
		return 0;
	}
	if (!isspace((unsigned char)*text) &&
	    (parse_integer(ret, text) || parse_real(ret, text) || parse_complex(ret, text)))
		return 0;
	return fail(f, EXIT_USAGE,
	            "--value %s: it takes a number (1, -0.5, nan, inf, true) or a complex one "
	            "(1,2 or 1+2j)",
	            text);
}

int args_bytes(uint64_t *ret, const char *flag, const char *text, struct failure *f)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	int shift = 0;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		shift = 10 * (int)(unit - units + 1);
		end++;
		if (!strcasecmp(end, "B") || !strcasecmp(end, "iB"))
			end += strlen(end);
	}
	if (errno || !isdigit((unsigned char)*text) || *end || *ret > UINT64_MAX >> shift)
		return fail(f, EXIT_USAGE, "%s %s: it takes bytes, as 64M or 1G", flag, text);
	*ret <<= shift;
	return 0;
}
