/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors to send: the right one, and others. They are opened once and sent again and again. */
#ifndef TESTS_FUZZ_DESCRIPTORS_H
#define TESTS_FUZZ_DESCRIPTORS_H

enum descriptor {
	DESCRIPTOR_MEMFD, /* sealed, of TRAFFIC_SIZE bytes: what a region takes */
	DESCRIPTOR_UNSEALED,
	DESCRIPTOR_SHORT,
	DESCRIPTOR_READ_ONLY,
	DESCRIPTOR_WRITE_SEALED,
	DESCRIPTOR_EMPTY,
	DESCRIPTOR_SPARSE, /* a TiB */
	DESCRIPTOR_PIPE,
	DESCRIPTOR_SOCKET,
	DESCRIPTOR_DIRECTORY,
	DESCRIPTOR_PATH,
	DESCRIPTOR_DEVICE,
	DESCRIPTOR_EVENT,
	DESCRIPTOR_COUNT
};

/* Aborts where one cannot be had. */
void descriptors_open(int ret[DESCRIPTOR_COUNT]);

#endif
