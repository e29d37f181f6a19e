/* SPDX-License-Identifier: Apache-2.0 */
/* The native protocol of the systemd journal (sd-journal(3)), in which lines have fields. */
#ifndef DAEMON_OBSERVE_JOURNAL_H
#define DAEMON_OBSERVE_JOURNAL_H

#include <stdbool.h>

#include "log.h"

/* Whether fd leads to the journal: $JOURNAL_STREAM has its device and inode. The variable alone does not tell
 * whether stderr was redirected since. */
bool journal_is(int fd);

/* Sends a line with its priority and, as far as known, TMAD_UID, TMAD_PID, TMAD_SESSION, TMAD_REQUEST,
 * TMAD_METHOD, TMAD_STATUS and TMAD_DURATION_US. Never blocks. Negative errno: the journal did not take it,
 * with -EAGAIN because it has no room. */
int journal_send(enum log_level level, const char *text, const struct log_about *about);

#endif
