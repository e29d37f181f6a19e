/* SPDX-License-Identifier: Apache-2.0 */
/* Standard error, written to without waiting for its reader.
 *
 * A pipe that is not read, a stopped terminal and a socket block their writer, and the descriptor cannot be
 * made non-blocking, because the parent shares it. A thread writes to them from a queue of SINK_BYTES. Lines
 * that find no room are counted; the count is written in their place when there is room again. Files and
 * devices such as /dev/null are written to directly.
 */
#ifndef DAEMON_OBSERVE_SINK_H
#define DAEMON_OBSERVE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_BYTES      65536
#define SINK_LINE_BYTES 1280 /* the maximum; a pipe takes it as a whole */

/* Formats the line "n lines are missing" into line[SINK_LINE_BYTES]; returns its length. Called by both
 * threads, one at a time. */
typedef size_t sink_missing(uint64_t n, char *line);

/* Writes to fd from now on; missing: lines that were lost before. Once. */
void sink_open(int fd, sink_missing *tell, uint64_t missing);

/* Queues a whole line with its line break. False: there was no room, and the line is lost. Never blocks. For
 * one thread only. */
bool sink_write(const char *line, size_t len);

/* Waits until all lines are written, for a limited time; returns how many are not. The last call before the
 * process ends: lines of the thread may be lost otherwise. */
uint64_t sink_close(unsigned ms);

#endif
