/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors to send: the valid one, and others. They are opened once and sent repeatedly. */
#ifndef TESTS_FUZZ_DESCRIPTORS_H
#define TESTS_FUZZ_DESCRIPTORS_H

enum descriptor {
	DESCRIPTOR_MEMFD, /* a sealed memfd of TRAFFIC_SIZE bytes, valid for a region */
	DESCRIPTOR_UNSEALED,
	DESCRIPTOR_SHORT,
	DESCRIPTOR_READ_ONLY,
	DESCRIPTOR_WRITE_SEALED,
	DESCRIPTOR_EMPTY,
	DESCRIPTOR_SPARSE, /* a file of 1 TiB */
	DESCRIPTOR_PIPE,
	DESCRIPTOR_SOCKET,
	DESCRIPTOR_DIRECTORY,
	DESCRIPTOR_PATH,
	DESCRIPTOR_DEVICE,
	DESCRIPTOR_EVENT,
	DESCRIPTOR_COUNT
};

/* Aborts if a descriptor cannot be opened. */
void descriptors_open(int ret[DESCRIPTOR_COUNT]);

#endif
