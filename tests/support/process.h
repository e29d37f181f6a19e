/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a tmad for a test in C, on a temporary socket. The program is $TEST_TMAD and its engine $TEST_ENGINE;
 * engine cuda runs on the stand-in driver in $TEST_BUILDDIR. Failures are reported to Criterion. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <sys/types.h>

struct process {
	pid_t pid;
	const char *program; /* NULL: the value of $TEST_TMAD */
	const char *engine;  /* NULL: the value of process_engine() */
	char directory[64];
	char socket[96];
};

/* Returns $TEST_ENGINE, or cpu if that is not set. "local" is no engine of tmad: tests/service/rig.h explains
 * it. */
const char *process_engine(void);

/* Starts tmad with one more argument, or with none if it is NULL, and waits until it accepts connections. */
void process_start(struct process *process, const char *argument);

/* Kills tmad with SIGKILL; the socket file remains. */
void process_kill(struct process *process);

/* Starts tmad again on the same socket path after process_kill. */
void process_start_again(struct process *process, const char *argument);

/* Sends the signal and waits for tmad to end, with exit status 0 if the signal is SIGTERM. Removes the
 * directory. */
void process_stop(struct process *process, int signal);

#endif
