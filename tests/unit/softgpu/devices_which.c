/* SPDX-License-Identifier: Apache-2.0 */
/* Tests by what a program tells the GPUs of a host apart. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "devices.h"

TestSuite(devices_which, .timeout = 60);

Test(devices_which, each_has_its_uuid_and_place)
{
	char place[MOST][16], text[32];
	CUuuid uuid[MOST];
	int bus, device;

	devices_open(MOST);
	for (int i = 0; i < MOST; i++) {
		expect_ok(cuDeviceGetUuid(&uuid[i], i));
		expect_ok(cuDeviceGetPCIBusId(place[i], 13, i));
		expect_result(cuDeviceGetPCIBusId(text, 12, i), CUDA_ERROR_INVALID_VALUE);
		expect_ok(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
		snprintf(text, sizeof text, "0000:%02x:00.0", (unsigned)bus);
		cr_expect_str_eq(place[i], text);
		for (int k = 0; k < i; k++) {
			cr_expect_neq(memcmp(&uuid[i], &uuid[k], sizeof uuid[i]), 0, "%d and %d", k, i);
			cr_expect_str_neq(place[i], place[k]);
		}
		expect_ok(cuDeviceGetByPCIBusId(&device, place[i]));
		cr_expect_eq(device, i);
		expect_ok(cuDeviceGetByPCIBusId(&device, place[i] + 5)); /* leaves out the domain */
		cr_expect_eq(device, i);
		snprintf(text, sizeof text, "0:%X:0", (unsigned)bus);
		expect_ok(cuDeviceGetByPCIBusId(&device, text));
		cr_expect_eq(device, i);
	}
	expect_result(cuDeviceGetByPCIBusId(&device, "0001:1a:00.0"), CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetByPCIBusId(&device, "0000:1a:00.1"), CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetByPCIBusId(&device, "0000:7f:00.0"), CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetByPCIBusId(&device, "softgpu"), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuDeviceGetByPCIBusId(&device, "0000:1a:00.0 and more"), CUDA_ERROR_INVALID_VALUE);
	devices_close();
}
