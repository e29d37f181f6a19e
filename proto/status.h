/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the error that explains one.
 *
 * A function that can refuse returns 0 or a negative STATUS_* code and fills a struct error with the one
 * sentence its user will read: the argument, the rule, the value.
 */
#ifndef PROTO_STATUS_H
#define PROTO_STATUS_H

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

/* "INVALID_ARGUMENT" and its kin; "OK" for 0, "PENDING" for 1, "UNKNOWN" for a code that is none of ours. */
const char *status_name(int status);

/* The meaning in a few words, for a status without a struct error. Same domain as status_name. */
const char *status_meaning(int status);

/* Fills err and returns status, so that a refusal is one statement. A message too long is cut. */
int error_set(struct error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
