/* SPDX-License-Identifier: Apache-2.0 */
/* How a child is known: by its name (argv[0]), and the descriptor of its control socket. */
#ifndef KERNELS_PROCESS_START_H
#define KERNELS_PROCESS_START_H

#define START_NAME "tmad-engine"
#define START_FD   3

#endif
