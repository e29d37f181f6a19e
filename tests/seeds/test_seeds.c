/* The examples that the unit is taught with, on whatever GPU the driver finds. What is least certain of the
 * hardware comes last: a launch that fails takes the rest with it.
 */
#include "cases.h"
#include "rig.h"
#include "tests/support/tap.h"

int main(void)
{
	const char *reason = rig_open();

	if (reason)
		return tap_skip_all("%s", reason);
	tap_note("%s", rig_device_name());
	cases_of_barriers();
	case_bulk();
	case_mojo();
	case_half_tile();
	case_multicast();
	cases_of_ranks();
	cases_of_types();
	cases_of_swizzles();
	cases_of_element_strides();
	cases_of_interleaves();
	rig_close();
	return tap_end();
}
