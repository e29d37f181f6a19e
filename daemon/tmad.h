/* SPDX-License-Identifier: Apache-2.0 */
/* The program without its main function, which names the engines of the build. */
#ifndef DAEMON_TMAD_H
#define DAEMON_TMAD_H

#include "daemon/memory/devices.h"

/* Parses the command line and serves until asked to stop. Returns the process's exit code. */
int tmad_main(int argc, char **argv, const struct engine_openers *openers);

#endif
