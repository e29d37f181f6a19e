/* Standard error, written to without waiting for whoever reads it.
 *
 * A pipe that is not read, a stopped terminal and a socket make their writer wait, and its descriptor cannot
 * be made non-blocking: it is the parent's too. A thread writes to them, from a queue of SINK_BYTES; a line
 * that finds no room is counted, and the number takes its place when there is room again. Files and devices
 * such as /dev/null take their lines at once.
 */
#ifndef DAEMON_OBSERVE_SINK_H
#define DAEMON_OBSERVE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_BYTES      65536
#define SINK_LINE_BYTES 1280 /* at most; a pipe takes it as a whole */

/* Writes a line that says that n lines are missing to line[SINK_LINE_BYTES]; returns its length. Called by
 * both threads, one at a time. */
typedef size_t sink_missing(uint64_t n, char *line);

/* Lines go to fd from now on; missing: of lines that were lost before. Once. */
void sink_open(int fd, sink_missing *tell, uint64_t missing);

/* A whole line with its end. False: there was no room, and it is lost. Never waits. Of one thread alone. */
bool sink_write(const char *line, size_t len);

/* Waits until all lines are written, at most so long; returns how many are not. The last act before the
 * process ends: without one, the thread's lines may be lost. */
uint64_t sink_close(unsigned ms);

#endif
