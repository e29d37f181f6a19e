/* Where memory is, as it travels: regions by the ids that they have on the connection there is now. */
#include "client.h"

#include <stdio.h>

int region_param(tma_client *client, const tma_region *region, const char *name, uint64_t *ret)
{
	if (region->client != client)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.region: it belongs to another client",
		                   name);
	if (region->life == REGION_GONE)
		return client_fail(client, region->error.status,
		                   "%s.region: it could not be registered again: %s", name,
		                   region->error.message);
	*ret = region->id;
	return 0;
}

int place_check(tma_client *client, const struct tma_place *place, const char *name)
{
	char field[32];

	snprintf(field, sizeof field, "%s.reserved", name);
	return reserved_check(client, place->reserved, COUNT(place->reserved), field);
}

int place_param(tma_client *client, struct tma_place place, const char *name, struct region_place *ret)
{
	int rc = place_check(client, &place, name);

	if (rc < 0)
		return rc;
	if (!place.region)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s.region is NULL; a place is a byte of a region", name);
	ret->offset = place.offset;
	return region_param(client, place.region, name, &ret->region);
}
