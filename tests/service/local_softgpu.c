/* SPDX-License-Identifier: Apache-2.0 */
/* The tests with the stand-in driver that are skipped on "local:". */
#include "rig.h"

#define RESTARTS "it ends the service, or loses its device; without one there is nothing to reconnect to"
#define SHARES   "memory that processes share belongs to a service"
#define MAKES    "a service makes memory of devices; a program makes its own"

const struct rig_skip rig_skips[] = {
	{ "softgpu", "a_mapping_outlives_its_service", RESTARTS },
	{ "softgpu", "memory_of_the_service", MAKES },
	{ "softgpu", "memory_of_the_service_is_mapped", MAKES },
	{ "softgpu", "memory_that_cannot_be_shared", SHARES },
	{ "softgpu", "registered_memory_is_mapped", SHARES },
	{ "softgpu_both", "memory_is_mapped_for_its_device", MAKES },
	{ "softgpu_both", "memory_of_either", MAKES },
	{ "softgpu_both", "none_of_them", MAKES },
	{ "softgpu_lost", NULL, RESTARTS },
	{ "softgpu_two", "memory_of_another_device",
	  "a service has the devices that it is given, a process all" },
	{ 0 },
};
