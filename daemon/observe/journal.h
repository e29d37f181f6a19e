/* The systemd journal's own way in (sd-journal(3)), which takes fields with a line. */
#ifndef DAEMON_OBSERVE_JOURNAL_H
#define DAEMON_OBSERVE_JOURNAL_H

#include <stdbool.h>

#include "log.h"

/* Whether what is written to fd is the journal's: $JOURNAL_STREAM names its device and inode. The variable
 * alone says nothing of a stderr that was sent elsewhere since. */
bool journal_is(int fd);

/* A line, its priority, and for what is known of whom it is about TMAD_UID, TMAD_PID, TMAD_SESSION,
 * TMAD_REQUEST, TMAD_METHOD, TMAD_STATUS and TMAD_DURATION_US. Never waits. Negative errno: the journal did
 * not take it, with -EAGAIN because it has no room. */
int journal_send(enum log_level level, const char *text, const struct log_about *about);

#endif
