/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of the library that are skipped on "local:". */
#include "rig.h"

#define RESTARTS "it ends the service, or stops it; without one there is nothing to reconnect to"
#define SHARES   "memory that processes share belongs to a service"
#define FILES    "the file of a mapping is needed to share it; without a service any memory will do"
#define RINGS    "submission rings belong to a service"

#define NOT_YET(what) "not yet: " what

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

	{ "library", "counters", NOT_YET("statistics") },
	{ "library_lists", "layers_in_a_table", NOT_YET("tables") },
	{ "library_lists", "keys_and_values_in_a_table", NOT_YET("tables") },
	{ "library_lists", "tables_on_both_sides", NOT_YET("tables") },
	{ "library_multicast", NULL, NOT_YET("further destinations") },
	{ "library_order", "a_point_that_never_comes", NOT_YET("timelines") },
	{ "library_order", "an_error_without_a_ticket", NOT_YET("timelines") },
	{ "library_order", "back_and_forth_by_points_alone", NOT_YET("timelines") },
	{ "library_order", "cancel", NOT_YET("timelines") },
	{ "library_order", "queued", NOT_YET("timelines") },
	{ "library_reshard", NULL, NOT_YET("resharding") },
	{ "library_reshard", "by_ticket", NOT_YET("timelines") },
	{ "library_tables", "an_entry_outside_its_region", NOT_YET("tables") },
	{ "library_tables", "places_of_a_request", NOT_YET("tables") },
	{ "library_tables", "plans_and_items", NOT_YET("tables") },
	{ "library_tables", "there_and_back", NOT_YET("tables") },
	{ 0 },
};
