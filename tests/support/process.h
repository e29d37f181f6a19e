/* SPDX-License-Identifier: Apache-2.0 */
/* A tmad of the test's own, for tests in C: on a temporary socket, stopped by its pid. The program is
 * $TEST_TMAD, its engine $TEST_ENGINE. The engine cuda is over the stand-in driver in $TEST_BUILDDIR.
 * Failures are Criterion's. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <sys/types.h>

struct process {
	pid_t pid;
	const char *program; /* NULL: $TEST_TMAD */
	const char *engine;  /* NULL: process_engine() */
	char directory[64];
	char socket[96];
};

/* $TEST_ENGINE; cpu when that is not set. local is none of tmad's: see tests/service/rig.h. */
const char *process_engine(void);

/* Starts tmad with one more argument (NULL: none) and waits until it accepts. */
void process_start(struct process *process, const char *argument);

/* Ends it by SIGKILL; its socket's file stays. */
void process_kill(struct process *process);

/* The same again at the same path, after process_kill. */
void process_start_again(struct process *process, const char *argument);

/* Sends the signal and waits for the end; with SIGTERM it has to exit with 0. Removes the directory. */
void process_stop(struct process *process, int signal);

#endif
