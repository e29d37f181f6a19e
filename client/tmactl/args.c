/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsers: a value is accepted as a whole or refused with a message that names the option and its
 * text. */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void skip_blanks(const char **text)
{
	while (**text == ' ' || **text == '\t')
		++*text;
}

/* Parses an integer with blanks around it and moves *text past it. Returns false if there is none, it does
 * not fit into 64 bits, or something other than the byte `stop` or the end of the text follows. */
static bool next_int(const char **text, char stop, int64_t *ret)
{
	const char *digit;
	char *end;

	skip_blanks(text);
	digit = **text == '-' || **text == '+' ? *text + 1 : *text;
	if (!isdigit((unsigned char)*digit))
		return false;
	errno = 0;
	*ret = strtoll(*text, &end, 10);
	*text = end;
	skip_blanks(text);
	return !errno && (!**text || **text == stop);
}

/* Parses a list of integers or, if second is not NULL, of pairs a:b. Returns the number of elements, -1 if
 * the text is not such a list, or -2 if it has more than TMA_MAX_RANK elements. */
static int parse_list(const char *text, int64_t first[TMA_MAX_RANK], int64_t second[TMA_MAX_RANK])
{
	int n = 0;

	skip_blanks(&text);
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
	return fail(f, EXIT_USAGE, "%s %s: expected %s", flag, text, form);
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
		return list_failed(n, "--permute", text,
		                   "dimension numbers, such as 1,0; negative ones count from the last", f);
	args->permute = text;
	args->n_perm = n;
	return 0;
}

int args_pad(struct view_args *args, const char *text, struct failure *f)
{
	int n = parse_list(text, args->before, args->after);

	if (n < 0)
		return list_failed(n, "--pad", text,
		                   "before:after for each dimension of the output, such as 1:2,0:0", f);
	args->pad = text;
	args->n_pad = n;
	return 0;
}

int args_split(struct view_args *args, const char *text, struct failure *f)
{
	int n = parse_list(text, args->split_dim, args->split_by);

	if (n < 0)
		return list_failed(n, "--split", text,
		                   "dimension:block for each split of the input, such as 1:16 or 0:128,1:32",
		                   f);
	args->split = text;
	args->n_split = n;
	return 0;
}

int args_join(struct view_args *args, const char *text, struct failure *f)
{
	int n = parse_list(text, args->join_dim, args->join_to);

	if (n < 0)
		return list_failed(n, "--join", text,
		                   "dimension:extent for each dimension to join with the next, such as 1:50",
		                   f);
	args->join = text;
	args->n_join = n;
	return 0;
}

int args_block(int64_t ret[TMA_MAX_RANK], int *ret_n, const char *text, struct failure *f)
{
	int n = parse_list(text, ret, NULL);

	for (int d = 0; d < n; d++)
		if (ret[d] < 1 && ret[d] != -1)
			n = -1;
	if (n < 0)
		return list_failed(n, "--amax-block", text,
		                   "extents, such as 128,128 or 1,-1; -1 is all of a dimension", f);
	*ret_n = n;
	return 0;
}

int args_mode(struct view_args *args, const char *text, struct failure *f)
{
	int mode = tma_pad_mode_parse(text);

	if (mode < 0)
		return fail(f, EXIT_USAGE,
		            "--mode %s: expected one of constant, edge, reflect, symmetric, wrap", text);
	args->mode = (enum tma_pad_mode)mode;
	args->has_mode = true;
	return 0;
}

/* Returns the type that a NumPy code such as f4, <f4 or |u1 stands for, or -1 if it is not the code of one of
 * the service's types in this machine's byte order. */
static int dtype_of_code(const char *text)
{
	static const struct {
		char code[4];
		enum tma_dtype dtype;
	} codes[] = {
		{ "b1", TMA_BOOL },      { "u1", TMA_UINT8 },       { "i1", TMA_INT8 },
		{ "u2", TMA_UINT16 },    { "i2", TMA_INT16 },       { "u4", TMA_UINT32 },
		{ "i4", TMA_INT32 },     { "u8", TMA_UINT64 },      { "i8", TMA_INT64 },
		{ "f2", TMA_FLOAT16 },   { "f4", TMA_FLOAT32 },     { "f8", TMA_FLOAT64 },
		{ "c8", TMA_COMPLEX64 }, { "c16", TMA_COMPLEX128 },
	};

	text += *text == '<' || *text == '=' || *text == '|';
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (!strcmp(text, codes[i].code))
			return (int)codes[i].dtype;
	return -1;
}

int args_dtype(enum tma_dtype *ret, const char *flag, const char *text, struct failure *f)
{
	int dtype = tma_dtype_parse(text);

	if (dtype < 0)
		dtype = dtype_of_code(text);
	if (dtype < 0 && *text == '>')
		return fail(f, EXIT_USAGE,
		            "%s %s: big-endian elements cannot be moved as numbers; omit the >", flag, text);
	if (dtype < 0)
		return fail(f, EXIT_USAGE, "%s %s: not an element type; tmactl info lists them", flag, text);
	*ret = (enum tma_dtype)dtype;
	return 0;
}

int args_type(struct type_arg *ret, const char *name, const char *what, const char *text, struct failure *f)
{
	enum tma_dtype dtype;
	char flag[32];

	snprintf(flag, sizeof flag, "--%s", name);
	if (args_dtype(&dtype, flag, text, f) < 0)
		return -1;
	if (ret->name && strcmp(ret->name, name) != 0 && ret->dtype != dtype)
		return fail(f, EXIT_USAGE, "--%s %s beside --%s %s: both name the type of %s; omit one", name,
		            text, ret->name, tma_dtype_name(ret->dtype), what);
	*ret = (struct type_arg){ name, dtype };
	return 0;
}

int args_shape(int64_t shape[TMA_MAX_RANK], int *ret_rank, const char *text, struct failure *f)
{
	int n = parse_list(text, shape, NULL);

	for (int d = 0; d < n; d++)
		if (shape[d] < 0)
			n = -1;
	if (n < 0)
		return list_failed(n, "--shape", text, "extents, none negative, such as 64,100", f);
	*ret_rank = n;
	return 0;
}

/* ---- Numbers ---------------------------------------------------------------------------------------- */

int args_number(const char **text, double *ret)
{
	double by;
	char *end;

	*ret = strtod(*text, &end);
	if (end == *text)
		return -1;
	*text = end;
	skip_blanks(text);
	if (**text != '/')
		return 0;
	by = strtod(*text + 1, &end);
	if (end == *text + 1)
		return -1;
	*text = end;
	skip_blanks(text);
	*ret /= by;
	return by == 0 ? -2 : 0;
}

int args_no_number(int rc, const char *name, const char *text, const char *form, struct failure *f)
{
	if (rc == -2)
		return fail(f, EXIT_USAGE, "--%s %s: a quotient divides by 0; expected %s", name, text, form);
	return fail(f, EXIT_USAGE, "--%s %s: expected %s", name, text, form);
}

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

/* Parses all of text as a real number or a quotient. Returns what args_number() returns, and -1 if anything,
 * even a blank, follows the number. */
static int parse_real(struct tma_number *ret, const char *text)
{
	int rc;

	*ret = (struct tma_number){ .kind = TMA_NUMBER_REAL };
	rc = args_number(&text, &ret->re);
	return *text || (!rc && isspace((unsigned char)text[-1])) ? -1 : rc;
}

int args_value(struct tma_number *ret, const char *text, struct failure *f)
{
	bool yes = !strcasecmp(text, "true");
	int rc = -1;

	if (yes || !strcasecmp(text, "false")) {
		*ret = (struct tma_number){ .kind = TMA_NUMBER_INT, .i = yes };
		return 0;
	}
	if (!isspace((unsigned char)*text) &&
	    (parse_integer(ret, text) || !(rc = parse_real(ret, text)) || parse_complex(ret, text)))
		return 0;
	return args_no_number(rc, "value", text,
	                      "a number (1, -0.5, 1/3, nan, inf, true) or a complex one (1,2 or 1+2j)", f);
}

/* Parses a decimal number, multiplies it by 2^shift, rounds it down and moves *text past it. Returns false if
 * there are no digits, none after a point, or the result overflows. */
static bool parse_scaled(const char **text, int shift, uint64_t *ret)
{
	const char *digits = *text;
	long double value;
	char *end;

	while (isdigit((unsigned char)**text))
		++*text;
	errno = 0;
	*ret = strtoull(digits, &end, 10);
	if (*text == digits || errno || *ret > UINT64_MAX >> shift)
		return false;
	*ret <<= shift;
	if (**text != '.')
		return true;
	value = 0;
	for (long double place = 0.1L; isdigit((unsigned char)*++*text); place /= 10)
		value += place * (**text - '0');
	value = value * (long double)(UINT64_C(1) << shift) + 1e-6L;
	return (*text)[-1] != '.' && !__builtin_add_overflow(*ret, (uint64_t)value, ret);
}

int args_bytes(uint64_t *ret, const char *flag, const char *text, struct failure *f)
{
	static const char units[] = "KMGT";
	const char *number = text;
	const char *end = text + strspn(text, "0123456789.");
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	int shift = unit ? 10 * (int)(unit - units + 1) : 0;

	if (!parse_scaled(&number, shift, ret) || number != end || (!shift && strchr(text, '.')))
		return fail(f, EXIT_USAGE, "%s %s: expected bytes, such as 64M or 1.5G", flag, text);
	end += unit != NULL;
	if (unit && (!strcasecmp(end, "B") || !strcasecmp(end, "iB")))
		end += strlen(end);
	if (*end)
		return fail(f, EXIT_USAGE, "%s %s: expected bytes, such as 64M or 1.5G", flag, text);
	return 0;
}

int args_check(const struct view_args *args, const char *value, struct failure *f)
{
	if (value && args->mode != TMA_PAD_CONSTANT)
		return fail(f, EXIT_USAGE, "--value %s: --mode %s takes its values from the source", value,
		            tma_pad_mode_name(args->mode));
	if (value && !args->pad && !args->split)
		return fail(
		    f, EXIT_USAGE,
		    "--value %s: nothing is padded; --pad says how much to pad, and --split in which blocks",
		    value);
	if (args->has_mode && !args->pad)
		return fail(f, EXIT_USAGE, "--mode %s: nothing is padded; --pad says how much to pad",
		            tma_pad_mode_name(args->mode));
	return 0;
}

/* ---- What requests pass and take ---------------------------------------------------------------------- */

static int args_priority(enum tma_priority *ret, const char *text, struct failure *f)
{
	static const char *const names[] = { [TMA_PRIORITY_NORMAL] = "normal",
		                             [TMA_PRIORITY_BACKGROUND] = "background",
		                             [TMA_PRIORITY_URGENT] = "urgent" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!strcmp(text, names[i])) {
			*ret = (enum tma_priority)i;
			return 0;
		}
	return fail(f, EXIT_USAGE, "--priority %s: expected one of normal, background, urgent", text);
}

int args_share(struct tma_order *ret, const char *name, const char *text, struct failure *f)
{
	unsigned long long n;
	char *end;

	if (!strcmp(name, "priority"))
		return args_priority(&ret->priority, text, f);
	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n == 0 || n > UINT32_MAX)
		return fail(f, EXIT_USAGE, "--%s %s: expected a whole number from 1 to %u", name, text,
		            UINT32_MAX);
	if (!strcmp(name, "multiprocessors"))
		ret->multiprocessors = (uint32_t)n;
	else
		ret->host_threads = (uint32_t)n;
	return 0;
}
