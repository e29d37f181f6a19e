/* SPDX-License-Identifier: Apache-2.0 */
/* People and programs are told this: status codes, the error that explains one, and foreign text in it.
 *
 * A function that can refuse returns 0 or a negative STATUS_* code and fills a struct error with the one
 * sentence its user will read: the argument, the rule, the value. What a peer sends may hold any byte; what
 * we print is valid UTF-8.
 */
#ifndef PROTO_STATUS_H
#define PROTO_STATUS_H

#include <stddef.h>
#include <stdint.h>

enum status {
	STATUS_PENDING = 1, /* of the library's functions that poll or wait; never travels */
	STATUS_OK = 0,
#define STATUS(name, code, meaning, remedy)         STATUS_##name = (code),
#define LIBRARY_STATUS(name, code, meaning, remedy) STATUS_##name = (code),
#include "status.def"
};

/* The codes that travel are -1 to -STATUS_COUNT. */
enum {
#define STATUS(name, code, meaning, remedy) +1
	STATUS_COUNT = 0
#include "status.def"
};

/* status is 0 or a STATUS_* code; message is one sentence without a full stop or line break. */
struct error {
	int status;
	char message[256];
};

/* Returns "INVALID_ARGUMENT" and its kin, "OK" for 0, "PENDING" for 1, "UNKNOWN" for a code that is none of
 * ours. */
const char *status_name(int status);

/* Returns the meaning in a few words, for a status without a struct error. It takes what status_name takes.
 */
const char *status_meaning(int status);

/* Fills err and returns status, so that a refusal is one statement. A message too long is cut. */
int error_set(struct error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- Foreign text -------------------------------------------------------------------------------------- */

/* A quotation of this size leaves room for the sentence around it. */
#define TEXT_QUOTE_SIZE 48

/* Returns what makes a noun a plural. */
static inline const char *text_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Writes data[len] as "data" in double quotes and returns text: printable ASCII as it is, a quote or
 * backslash behind a backslash, any other byte as \xNN; cut with "..." when it does not fit. text_size is at
 * least 6. */
char *text_quote(const char *data, size_t len, char *text, size_t text_size);

/* Copies data[len] as UTF-8 without control characters, ended by a NUL, each byte that is not '?'; cut
 * between characters when it does not fit. Returns the length. text_size is at least 1; text may be data. */
size_t text_clean(const char *data, size_t len, char *text, size_t text_size);

#endif
