/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that write a struct failure. The text is cleaned here, so it is safe to print to a
 * terminal. */
#include "tmactl.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/tmactl/terminal/print.h"

int fail(struct failure *f, enum exit_code code, const char *format, ...)
{
	va_list args;

	if (f->code)
		return -1;
	f->code = code;
	va_start(args, format);
	vsnprintf(f->text, sizeof f->text, format, args);
	va_end(args);
	print_clean(f->text); /* Paths and the service's messages may contain control characters. */
	return -1;
}

void fail_status(struct failure *f, int status)
{
	if (!f->code)
		f->status = status;
}

int fail_as(struct failure *f, const struct failure *why)
{
	if (!f->code)
		*f = *why;
	return -1;
}

const char *failure_name(const struct failure *f)
{
	return f->status < 0 ? tma_status_name(f->status) : f->code == EXIT_USAGE ? "USAGE" : "FAILED";
}
