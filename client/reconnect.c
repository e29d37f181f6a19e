/* A lost connection is made anew by the next request: the service starts again at the same path, or somebody
 * starts it. Regions and plans keep their handles and get new ids. */
#include "client.h"

#include <poll.h>

#include "proto/clock.h"

#define PAUSE_MS 20 /* between two tries */

static int join(tma_client *client, int64_t deadline);
static int connect_again(tma_client *client, int64_t deadline);
static int rejoin(tma_region *region, int64_t deadline);
static int prepare_again(tma_plan *plan, int64_t deadline);
static bool is_refused(const tma_client *client, int rc);

int client_ready(tma_client *client, int64_t deadline)
{
	int rc;

	if (client->is_bound)
		return client_check(client);
	if (client->is_device_lost) {
		client_pump(client); /* what has been answered is an answer */
		client_break(client, STATUS_DEVICE_LOST, "the device of tmad at %s was lost", client->path);
	}
	if (client->sock >= 0)
		return 0;
	rc = client_check_usable(client);
	if (rc < 0)
		return rc;
	rc = join(client, deadline);
	if (rc == STATUS_DISCONNECTED && !client->is_given_up)
		rc = join(client, deadline); /* it went away again while regions were registered */
	if (!rc)
		client->reconnects++;
	return rc;
}

static int join(tma_client *client, int64_t deadline)
{
	int rc = connect_again(client, deadline);

	return rc < 0 ? rc : client_rejoin(client, deadline);
}

static int connect_again(tma_client *client, int64_t deadline)
{
	struct error lost = client->ended;
	struct error why;
	int64_t until = clock_ms() + (client->is_given_up ? 0 : client->retry_ms);
	int rc;

	if (deadline >= 0 && deadline < until)
		until = deadline;
	while ((rc = client_open(client, until)) == STATUS_DISCONNECTED && clock_ms() < until)
		poll(NULL, 0, PAUSE_MS);
	if (!rc)
		return 0;
	client->is_given_up = true;
	why = client->error;
	return client_fail(client, rc, "the connection is closed: %s; %s", lost.message, why.message);
}

/* A region or a plan that the service refuses is gone; the others stay. A connection that is lost meanwhile
 * may be made anew by the next request, whatever it was lost by. */
int client_rejoin(tma_client *client, int64_t deadline)
{
	int rc = 0;

	client->is_bound = true;
	for (tma_region *region = client->regions; region && !rc; region = region->next)
		if (region->life == REGION_KNOWN && region->connection != client->connection)
			rc = rejoin(region, deadline);
	for (tma_plan *plan = client->plans; plan && !rc; plan = plan->next)
		if (plan->life == REGION_KNOWN && plan->connection != client->connection)
			rc = prepare_again(plan, deadline);
	client->is_bound = false;
	if (client->sock < 0)
		client->ended.status = STATUS_DISCONNECTED;
	return rc;
}

static int rejoin(tma_region *region, int64_t deadline)
{
	tma_client *client = region->client;
	int rc;

	if (region->is_service_made && region->kind == REGION_KIND_CUDA_IPC)
		rc = client_fail(client, STATUS_NOT_FOUND,
		                 "the service had made its memory, which went with it");
	else
		rc = region_register(region, deadline);
	if (!is_refused(client, rc))
		return rc;
	region->life = REGION_GONE;
	region->error = client->error;
	return 0;
}

static int prepare_again(tma_plan *plan, int64_t deadline)
{
	int rc = plan_prepare(plan, deadline);

	if (!is_refused(plan->client, rc))
		return rc;
	plan->life = REGION_GONE;
	plan->error = plan->client->error;
	return 0;
}

/* By the service, which is still there. */
static bool is_refused(const tma_client *client, int rc)
{
	return rc < 0 && client->sock >= 0 && !client->is_device_lost;
}
