/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of ranges of device memory that are skipped on "local:". */
#include "rig.h"

#define RESTARTS  "it ends the service; without one there is nothing to reconnect to"
#define SHARES    "memory that processes share belongs to a service"
#define EXPORTS   "what cannot be exported is refused; without a service nothing is exported"
#define LIMITS    "limits belong to a service"
#define ADDRESSES "without a service a region is its addresses, whatever memory lies there now"

const struct rig_skip rig_skips[] = {
	{ "pools", "are_registered_again_when_the_service_comes_back", RESTARTS },
	{ "pools", "by_the_callers_descriptor", SHARES },
	{ "pools", "memory_at_a_reused_address_is_registered_anew", ADDRESSES },
	{ "pools", "that_are_none", SHARES },
	{ "pools", "that_cannot_be_exported", EXPORTS },
	{ "range_parts", NULL, SHARES },
	{ "ranges", "a_search_that_asks_the_driver", ADDRESSES },
	{ "ranges", "a_search_that_asks_the_driver_about_one_allocation", ADDRESSES },
	{ "ranges", "are_registered_again_when_the_service_comes_back", RESTARTS },
	{ "ranges", "memory_at_a_reused_address_is_registered_anew", ADDRESSES },
	{ "ranges", "with_strangers", EXPORTS },
	{ "ranges_narrow", NULL, LIMITS },
	{ 0 },
};
