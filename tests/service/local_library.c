/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of the library that are skipped on "local:". */
#include "rig.h"

#define RESTARTS "it ends the service, or stops it; without one there is nothing to reconnect to"
#define SHARES   "memory that processes share belongs to a service"
#define FILES    "the file of a mapping is needed to share it; without a service any memory will do"
#define RINGS    "submission rings belong to a service"

const struct rig_skip rig_skips[] = {
	{ "library", "a_service_that_dies", RESTARTS },
	{ "library", "memfd_of_the_clients", SHARES },
	{ "library", "file_of_a_tmpfs", SHARES },
	{ "library", "file_of_a_full_tmpfs", SHARES },
	{ "library", "limits_and_sessions", "limits and sessions belong to a service" },
	{ "library_host", "a_file_that_cannot_be_written_to", FILES },
	{ "library_host", "is_registered_again_when_the_service_comes_back", RESTARTS },
	{ "library_host", "no_descriptor_is_left", FILES },
	{ "library_host", "read_only", FILES },
	{ "library_host", "several_mappings_of_a_range", FILES },
	{ "library_host", "what_is_wrong", FILES },
	{ "library_host", "what_lies_there_now",
	  "a region is its addresses, whatever memory lies there now" },
	{ "library_interrupt", NULL, RESTARTS },
	{ "library_order", "a_plan_outlives_the_service", RESTARTS },
	{ "library_ring", NULL, RINGS },
	{ "library_seal", NULL, "memory is sealed that a service shares" },
	{ "library_split", "rings", RINGS },
	{ "library_tables", "after_the_service_was_killed", RESTARTS },
	{ "library_tables", "places_of_a_request_after_a_restart", RESTARTS },
	{ 0 },
};
