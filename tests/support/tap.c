/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the cases of the running program; a process reports one test. */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct counts {
	int cases;
	int failures;
};

static struct counts own, *counts = &own;

/* Writes one line: before, the formatted text, and the end. */
__attribute__((format(printf, 2, 0))) static void line(const char *before, const char *format, va_list args)
{
	fputs(before, stdout);
	vprintf(format, args);
	putchar('\n');
	fflush(stdout);
}

void tap_share(void)
{
	struct counts *shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		tap_bail_out("no memory to share");
	*shared = *counts;
	counts = shared;
}

int tap_count(void)
{
	return counts->cases;
}

bool tap_case(bool passed, const char *format, ...)
{
	char before[32];
	va_list args;

	snprintf(before, sizeof(before), "%sok %d - ", passed ? "" : "not ", ++counts->cases);
	counts->failures += !passed;
	va_start(args, format);
	line(before, format, args);
	va_end(args);
	return passed;
}

void tap_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line("# ", format, args);
	va_end(args);
}

int tap_skip_all(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line("1..0 # SKIP ", format, args);
	va_end(args);
	return 0;
}

void tap_bail_out(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line("Bail out! ", format, args);
	va_end(args);
	exit(1);
}

int tap_end(void)
{
	printf("1..%d\n", counts->cases);
	return counts->failures > 0;
}

long tap_portion(long full)
{
	const char *share = getenv("TEST_SHARE");
	double portion = (double)full * (share && *share ? atof(share) : 0.1);

	return portion < 1 ? 1 : (long)portion;
}
