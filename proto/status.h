/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, the errors that explain them, and text of other origin within error messages.
 *
 * A function that can fail returns 0 or a negative STATUS_* code, and fills a struct error with the sentence
 * that the user will read: it names the argument, the rule and the value. A peer may send arbitrary bytes;
 * printed text is valid UTF-8.
 */
#ifndef PROTO_STATUS_H
#define PROTO_STATUS_H

#include <stddef.h>
#include <stdint.h>

enum status {
	STATUS_PENDING = 1, /* returned by the library's functions that poll or wait; never sent */
	STATUS_OK = 0,
#define STATUS(name, code, meaning, remedy)         STATUS_##name = (code),
#define LIBRARY_STATUS(name, code, meaning, remedy) STATUS_##name = (code),
#include "status.def"
};

/* The codes that are sent are -1 to -STATUS_COUNT. */
enum {
#define STATUS(name, code, meaning, remedy) +1
	STATUS_COUNT = 0
#include "status.def"
};

/* status is 0 or a STATUS_* code. message is one sentence without a full stop and without line breaks. */
struct error {
	int status;
	char message[256];
};

/* Returns the name of a status, such as "INVALID_ARGUMENT": "OK" for 0, "PENDING" for 1, and "UNKNOWN" for an
 * unknown code. */
const char *status_name(int status);

/* Returns the meaning of a status in a few words, for errors without a message. Accepts every status that
 * status_name accepts. */
const char *status_meaning(int status);

/* Fills err and returns status, so that a function can fail in one statement. A message that is too long is
 * truncated. */
int error_set(struct error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- Foreign text -------------------------------------------------------------------------------------- */

/* size of a buffer for a quotation, which leaves enough of an error message for the sentence around it */
#define TEXT_QUOTE_SIZE 48

/* Returns the suffix of a plural: "" if n is 1, otherwise "s". */
static inline const char *text_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Writes data[len] in double quotes and returns text. Printable ASCII is copied, quotes and backslashes are
 * escaped by a backslash, and any other byte becomes \xNN. If it does not fit, it ends in "...". text_size
 * must be at least 6. */
char *text_quote(const char *data, size_t len, char *text, size_t text_size);

/* Copies data[len] as UTF-8 without control characters, terminated by a NUL; each byte that is not valid
 * becomes '?'. If it does not fit, it is cut between two characters. Returns the length. text_size must be at
 * least 1, and text may be data. */
size_t text_clean(const char *data, size_t len, char *text, size_t text_size);

#endif
