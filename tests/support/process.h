/* A tmad of the test's own, for tests in C: on a temporary socket, stopped by its pid. The program is
 * $TEST_TMAD. Failures are Criterion's. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <sys/types.h>

struct process {
	pid_t pid;
	char directory[64];
	char socket[96];
};

/* Starts tmad --engine=cpu with one more argument (NULL: none) and waits until it accepts. */
void process_start(struct process *process, const char *argument);

/* Sends the signal and waits for the end; with SIGTERM it has to exit with 0. Removes the directory. */
void process_stop(struct process *process, int signal);

#endif
