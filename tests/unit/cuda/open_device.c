/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the GPU that the argument names, or the first one without an argument, and closes it again. Prints
 * what the GPU is, or the status and the message. Exits with 0 either way, so any other end is a crash. */
#include <stdio.h>

#include "kernels/cuda/driver/driver.h"

int main(int argc, char **argv)
{
	struct device device;
	struct error err;
	int r = device_open(&device, argc > 1 ? argv[1] : NULL, &err);

	if (r < 0) {
		printf("%s: %s\n", status_name(r), err.message);
		return 0;
	}
	printf("OK: %d %s %s %d.%d\n", device.ordinal, device.name, device.uuid, device.major, device.minor);
	device_close(&device);
	return 0;
}
