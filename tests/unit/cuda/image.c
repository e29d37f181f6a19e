/* SPDX-License-Identifier: Apache-2.0 */
/* What the embedded image has code for. Its container is as nvcc 13 writes it: a header of 16 bytes with the
 * size of what follows, then entries, each of a kind and for an architecture. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <criterion/criterion.h>

#define MAGIC 0xba55ed50u

extern const unsigned char cuda_image[], cuda_image_end[];

enum kind { KIND_PTX = 1, KIND_CODE = 2 };

struct header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t bytes;
};

struct entry {
	uint16_t kind;
	uint16_t version;
	uint32_t header_bytes;
	uint64_t bytes;
	uint32_t compression[3];
	uint32_t architecture;
};

static bool has(enum kind kind, uint32_t architecture)
{
	const unsigned char *at = cuda_image + sizeof(struct header);
	struct entry entry;
	while (at + sizeof entry <= cuda_image_end) {
		memcpy(&entry, at, sizeof entry);
		cr_assert(entry.kind == KIND_PTX || entry.kind == KIND_CODE, "kind %d", entry.kind);
		if (entry.kind == kind && entry.architecture == architecture && entry.bytes > 0)
			return true;
		at += entry.header_bytes + entry.bytes;
	}
	return false;
}

Test(image, is_whole)
{
	struct header header;
	memcpy(&header, cuda_image, sizeof header);
	cr_expect_eq(header.magic, MAGIC);
	cr_expect_eq(header.header_bytes + header.bytes, (uint64_t)(cuda_image_end - cuda_image));
}

Test(image, has_code_for_both_targets_and_ptx_for_later_ones)
{
	cr_expect(has(KIND_CODE, 90));
	cr_expect(has(KIND_CODE, 100));
	cr_expect(has(KIND_PTX, 90));
	cr_expect_not(has(KIND_CODE, 80));
}
