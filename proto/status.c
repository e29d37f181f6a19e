/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the status codes, and the one way to fill a struct error. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

const char *status_name(int status)
{
	switch (status) {
	case STATUS_PENDING:
		return "PENDING";
	case STATUS_OK:
		return "OK";
#define STATUS(name, code, meaning, remedy) \
	case code:                          \
		return #name;
#define LIBRARY_STATUS STATUS
#include "status.def"
	default:
		return "UNKNOWN";
	}
}

const char *status_meaning(int status)
{
	switch (status) {
	case STATUS_PENDING:
		return "not yet";
	case STATUS_OK:
		return "done";
#define STATUS(name, code, meaning, remedy) \
	case code:                          \
		return meaning;
#define LIBRARY_STATUS STATUS
#include "status.def"
	default:
		return "a status this version does not know";
	}
}

int error_set(struct error *err, int status, const char *format, ...)
{
	va_list args;

	err->status = status;
	va_start(args, format);
	vsnprintf(err->message, sizeof err->message, format, args);
	va_end(args);
	return status;
}
