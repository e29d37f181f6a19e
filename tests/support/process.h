/* A tmad of the test's own, for tests in C: on a temporary socket, stopped by its pid. The program is
 * $TEST_TMAD, its engine $TEST_ENGINE: cpu when that is not set; cuda is over the stand-in driver of
 * $TEST_BUILDDIR. Failures are Criterion's. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <sys/types.h>

struct process {
	pid_t pid;
	char directory[64];
	char socket[96];
};

const char *process_engine(void);

/* Starts tmad with one more argument (NULL: none) and waits until it accepts. */
void process_start(struct process *process, const char *argument);

/* Sends the signal and waits for the end; with SIGTERM it has to exit with 0. Removes the directory. */
void process_stop(struct process *process, int signal);

#endif
