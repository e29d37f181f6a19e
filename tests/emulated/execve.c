/* SPDX-License-Identifier: Apache-2.0 */
/* Criterion runs each test in a separate process, which executes the program again. The kernel cannot execute
 * a program for another machine, so this executes the emulator, whose command is in the environment variable
 * EMULATOR. */
#include <sys/syscall.h>
#include <unistd.h>

/* Criterion's calls resolve to this function before libc's. A worker has no arguments. */
__attribute__((visibility("default"))) int execve(const char *path, char *const argv[], char *const envp[])
{
	const char *shell[] = { "sh", "-c", "exec $EMULATOR \"$0\"", path, NULL };

	(void)argv;
	return (int)syscall(SYS_execve, "/bin/sh", shell, envp);
}
