/* SPDX-License-Identifier: Apache-2.0 */
/* Reports findings. */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_found(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: found: not (%s)", file, line, condition);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

void fuzz_check_error(const struct error *err)
{
	size_t len = strnlen(err->message, sizeof err->message);

	fuzz_check(err->status < 0 && err->status >= -STATUS_COUNT, "%d", err->status);
	fuzz_check(len > 0 && len < sizeof err->message, "%zu bytes", len);
	for (size_t i = 0; i < len; i++)
		fuzz_check(err->message[i] >= 0x20 && err->message[i] < 0x7f, "byte 0x%02x of: %s",
		           (unsigned char)err->message[i], err->message);
}
