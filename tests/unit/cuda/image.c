/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which architectures the embedded images have code for, unless the build left it out (NO_CODE). nvcc
 * 13 writes a container as a header of 16 bytes that has the size of the rest, followed by entries, each of a
 * kind and for an architecture. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cuda/driver/driver.h"
#include "soft.h"

#define MAGIC 0xba55ed50u

#define UNIT(name) extern const unsigned char image_##name[], image_##name##_end[];
#include "kernels/cuda/launch/kernels.def"

static const struct image {
	const char *name;
	const unsigned char *start, *end;
} images[] = {
#define UNIT(name) { #name, image_##name, image_##name##_end },
#include "kernels/cuda/launch/kernels.def"
};

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

static bool has(const struct image *image, enum kind kind, uint32_t architecture)
{
	const unsigned char *at = image->start + sizeof(struct header);
	struct entry entry;
	while (at + sizeof entry <= image->end) {
		memcpy(&entry, at, sizeof entry);
		cr_assert(entry.kind == KIND_PTX || entry.kind == KIND_CODE, "%s: kind %d", image->name,
		          entry.kind);
		if (entry.kind == kind && entry.architecture == architecture && entry.bytes > 0)
			return true;
		at += entry.header_bytes + entry.bytes;
	}
	return false;
}

/* An image without code is a header alone. */
static bool is_empty(const struct image *image)
{
	return image->end - image->start == sizeof(struct header);
}

Test(image, is_whole)
{
	for (size_t i = 0; i < UNIT_COUNT; i++) {
		struct header header;
		memcpy(&header, images[i].start, sizeof header);
		cr_expect_eq(header.magic, MAGIC, "%s", images[i].name);
		cr_expect_eq(header.header_bytes + header.bytes, (uint64_t)(images[i].end - images[i].start),
		             "%s", images[i].name);
	}
}

Test(image, has_code_for_both_targets_and_ptx_for_later_ones)
{
	for (const struct image *image = images; image < images + UNIT_COUNT; image++) {
		if (is_empty(image))
			cr_skip_test("it was left out");
		cr_expect(has(image, KIND_CODE, 90), "%s", image->name);
		cr_expect(has(image, KIND_CODE, 100), "%s", image->name);
		cr_expect(has(image, KIND_PTX, 90), "%s", image->name);
		cr_expect_not(has(image, KIND_CODE, 80), "%s", image->name);
	}
}

/* Call n fails as the driver's cuModuleLoadData does with an image that has no code for the device. */
Test(image, a_device_that_it_has_no_code_for_is_refused)
{
	struct device device;
	struct error err;
	char text[16];
	bool said = false, lacks = false;
	for (size_t i = 0; i < UNIT_COUNT; i++)
		lacks |= is_empty(&images[i]);
	setenv("SOFTGPU_FAIL_WITH", "209", 1);
	for (int n = 1, r = -1; r < 0; n++) {
		snprintf(text, sizeof text, "%d", n);
		setenv("SOFTGPU_FAIL", text, 1);
		r = device_open(&device, NULL, &err);
		if (r == 0)
			device_close(&device);
		else if (strstr(err.message, "this build has no kernels for a GPU"))
			said |= r == STATUS_UNSUPPORTED;
		driver_close();
	}
	cr_expect_eq(said, lacks);
}
