/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a load: one thread waits with epoll for all connections, counts the answers of those that are ready,
 * and sends new requests in their place. The requests of a connection are answered in order, so their tickets
 * form a circular queue. */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/tmactl/lives.h"
#include "proto/clock.h"

#define EVENTS   64
#define DRAIN_NS UINT64_C(5000000000) /* how long to wait for requests in flight after the end of the run */
#define LOOK_MS  100                  /* longest wait before the clock and the stop flag are checked again */
#define RETRY_MS 20                   /* time between two attempts to reconnect */

/* A request in flight. */
struct asked {
	tma_ticket ticket;
	uint64_t start_ns;
	struct tma_item item; /* run of a plan that computes scales; has to exist until the ticket is taken */
};

struct connection {
	tma_client *client;
	bool is_lost;     /* the connection is lost and will be tried again */
	uint32_t life;    /* life of the service that it is connected to (lives.h) */
	bool is_served;   /* a request has been answered on it at least once */
	uint64_t gone_ns; /* when it was first lost since its last answer, by clock_ns(); 0: it was not */
	struct tma_tensor dst, src;
	struct tma_transform transform;
	struct cast_request cast;     /* copy of the request's, with a tensor of its own for scales */
	struct tma_operands operands; /* place of the scales for runs of the plan */
	tma_plan *plan;               /* NULL: requests are not prepared */
	uint32_t first;               /* index of the oldest request in asked[] */
	uint32_t n;                   /* requests in flight */
	short events;                 /* poll events that epoll watches for */
	struct asked *asked;          /* ring of load->depth entries */
};

struct run {
	const struct load *load;
	const struct tmactl *t;
	struct load_result *result;
	struct failure *failure;
	int epoll;
	uint64_t start_ns;
	uint64_t under_way; /* requests in flight on all connections */
	uint32_t n_lost;    /* connections with is_lost */
	struct lives lives;
	struct failure why; /* why a connection was last lost */
	struct connection *connections;
};

static int connection_open(struct run *r, struct connection *c);
static int connection_lose(struct run *r, struct connection *c);
static int connection_ask(struct run *r, struct connection *c, uint64_t now);
static int connection_watch(struct run *r, struct connection *c);
static int run_loop(struct run *r);

int load_run(const struct load *load, const struct tmactl *t, struct load_result *ret, struct failure *f)
{
	struct run r = { .load = load, .t = t, .result = ret, .failure = f };
	int rc = 0;

	*ret = (struct load_result){ 0 };
	r.epoll = epoll_create1(EPOLL_CLOEXEC);
	r.connections = calloc(load->connections, sizeof *r.connections);
	if (r.epoll < 0 || !r.connections)
		rc = fail(f, EXIT_FAILED, "no %s for %u connection%s (%s)",
		          r.epoll < 0 ? "descriptor" : "memory", load->connections,
		          load->connections == 1 ? "" : "s", strerror(errno));
	for (uint32_t i = 0; i < load->connections && !rc; i++)
		rc = connection_open(&r, &r.connections[i]);
	if (!rc)
		rc = run_loop(&r);
	for (uint32_t i = 0; i < load->connections && r.connections; i++) {
		tma_free(r.connections[i].client);
		free(r.connections[i].asked);
	}
	free(r.connections);
	if (r.epoll >= 0)
		close(r.epoll);
	return rc;
}

/* ---- Connections ------------------------------------------------------------------------------------ */

static bool is_gone(int rc)
{
	return rc == TMA_DISCONNECTED || rc == TMA_DEVICE_LOST;
}

static int refused(const struct run *r, const struct connection *c)
{
	return tmactl_refused(c->client, r->failure);
}

static size_t tensor_bytes(const struct tma_tensor *tensor)
{
	size_t bytes = tma_dtype_size(tensor->dtype);

	for (int d = 0; d < tensor->rank; d++)
		bytes *= (size_t)tensor->shape[d];
	return bytes;
}

/* Creates a region for a tensor like `like`, on a device or, if device is NULL, in host memory. Memory that
 * this process can write is filled, so that its pages exist before the run. */
static int connection_map(struct run *r, struct connection *c, const char *device, struct tma_tensor *ret,
                          const struct tma_tensor *like)
{
	const enum tma_region_kind kind = device ? TMA_REGION_ANY : TMA_REGION_MEMFD;
	size_t bytes = tensor_bytes(like);

	*ret = *like;
	if (tma_region_create_on(c->client, device, kind, bytes ? bytes : 1, &ret->region) < 0)
		return refused(r, c);
	if (tma_region_data(ret->region))
		memset(tma_region_data(ret->region), 1, bytes);
	return 0;
}

static int connection_add(struct run *r, struct connection *c)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };

	c->events = EPOLLIN;
	if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, tma_fd(c->client), &event) < 0)
		return fail(r->failure, EXIT_FAILED, "a connection cannot be watched (%s)", strerror(errno));
	return 0;
}

/* Gives the connection's transform a region of its own to which the computed scales are written. */
static int connection_map_scales(struct run *r, struct connection *c, const struct cast_request *cast)
{
	c->cast = *cast;
	if (connection_map(r, c, r->load->dst_device, &c->cast.amax_scale, &cast->amax_scale) < 0)
		return -1;
	cast_request_point(&c->cast);
	c->operands.amax_scale = (struct tma_place){ .region = c->cast.amax_scale.region };
	c->transform.conversion = &c->cast.conversion;
	return 0;
}

static int connection_open(struct run *r, struct connection *c)
{
	const struct transform_request *request = r->load->request;

	c->asked = calloc(r->load->depth, sizeof *c->asked);
	if (!c->asked)
		return fail(r->failure, EXIT_FAILED, "no memory for %u request%s", r->load->depth,
		            r->load->depth == 1 ? "" : "s");
	c->client = tmactl_connect(r->t, r->failure);
	if (!c->client)
		return -1;
	tma_set_batching(c->client, true);
	if (request) {
		c->transform = request->transform;
		c->transform.dst = &c->dst;
		c->transform.src = &c->src;
		if (connection_map(r, c, r->load->dst_device, &c->dst, &request->dst) < 0 ||
		    connection_map(r, c, r->load->src_device, &c->src, &request->src) < 0)
			return -1;
		if (request->transform.conversion && request->transform.conversion->amax &&
		    connection_map_scales(r, c, &request->cast) < 0)
			return -1;
		if (r->load->is_prepared && tma_plan_prepare(c->client, &c->transform, &c->plan) < 0)
			return refused(r, c);
		c->transform.order = r->load->order;
	}
	return connection_add(r, c);
}

static int connection_submit(struct connection *c, bool is_ping, struct asked *asked)
{
	const struct tma_place dst = { .region = c->dst.region, .offset = c->dst.offset };
	const struct tma_place src = { .region = c->src.region, .offset = c->src.offset };

	if (is_ping)
		return tma_submit_ping(c->client, &asked->ticket);
	if (!c->plan)
		return tma_submit(c->client, &c->transform, &asked->ticket);
	if (!c->operands.amax_scale.region)
		return tma_submit_run(c->client, c->plan, dst, src, c->transform.order, &asked->ticket);
	asked->item = (struct tma_item){ .plan = c->plan, .dst = dst, .src = src, .operands = &c->operands };
	return tma_submit_items(c->client, &asked->item, 1, c->transform.order, &asked->ticket);
}

/* Submits requests until enough are in flight or the limit is reached, and sends them. */
static int connection_ask(struct run *r, struct connection *c, uint64_t now)
{
	const struct load *load = r->load;
	struct asked *asked;
	int rc = 0;

	while (c->n < load->depth && r->result->submitted < load->requests && !rc) {
		asked = &c->asked[(c->first + c->n) % load->depth];
		asked->start_ns = now;
		rc = connection_submit(c, !load->request, asked);
		if (rc)
			break;
		c->n++;
		r->under_way++;
		r->result->submitted++;
	}
	if (!rc)
		rc = tma_flush(c->client);
	if (is_gone(rc))
		return connection_lose(r, c);
	return rc < 0 ? refused(r, c) : connection_watch(r, c);
}

static int connection_watch(struct run *r, struct connection *c)
{
	short events = tma_events(c->client);
	struct epoll_event event = { .events = (uint32_t)events, .data.ptr = c };

	if (events == c->events)
		return 0;
	c->events = events;
	if (epoll_ctl(r->epoll, EPOLL_CTL_MOD, tma_fd(c->client), &event) < 0)
		return fail(r->failure, EXIT_FAILED, "a connection cannot be watched (%s)", strerror(errno));
	return 0;
}

static void count_moved(struct load_result *result, const struct tma_result *answer)
{
	result->bytes += answer->bytes;
	result->engine_ns += answer->ns;
	memcpy(result->path, answer->path, sizeof answer->path);
}

/* Returns whether the service closed the connection because of its limit on connections. A first ping that
 * fails with QUOTA means just that, because a ping itself has no limit. */
static bool is_turned_away(const struct run *r, const struct connection *c, int rc)
{
	return rc == TMA_QUOTA && !c->is_served && !r->load->request;
}

/* Counts the end of the oldest request and removes it from the ring. One that was lost with the connection
 * does not count as submitted, so that another is submitted in its place. */
static void count(struct run *r, struct connection *c, int rc, const struct tma_result *answer, uint64_t now)
{
	struct load_result *result = r->result;

	if (is_gone(rc) || is_turned_away(r, c, rc)) {
		result->unanswered++;
		result->submitted--;
	} else {
		c->is_served = true;
		lives_join(&r->lives, c->life);
		result->reconnects = r->lives.newest;
		c->gone_ns = 0;
		histogram_add(&result->latency, now - c->asked[c->first].start_ns);
		if (rc < 0 && rc > -LOAD_STATUSES)
			result->failed[-rc]++;
		else if (r->load->request)
			count_moved(result, answer);
	}
	c->first = (c->first + 1) % r->load->depth;
	c->n--;
	r->under_way--;
}

/* Counts all requests that have ended. Returns whether the connection is lost. */
static bool connection_count(struct run *r, struct connection *c, uint64_t now)
{
	struct tma_result answer;
	bool gone = false;
	int rc;

	while (c->n && (rc = tma_poll(c->client, c->asked[c->first].ticket, &answer)) != TMA_PENDING) {
		gone |= is_gone(rc) || is_turned_away(r, c, rc);
		count(r, c, rc, &answer, now);
	}
	return gone || tma_fd(c->client) < 0;
}

/* ---- A service that goes away ----------------------------------------------------------------------- */

static int gave_up(struct run *r)
{
	fail_status(r->failure, r->why.status);
	return fail(r->failure, EXIT_FAILED, "%s, and it did not come back within %d s", r->why.text,
	            (tmactl_patience_ms(r->t) + 999) / 1000);
}

static bool has_patience(const struct run *r, const struct connection *c)
{
	return clock_ns() - c->gone_ns < (uint64_t)tmactl_patience_ms(r->t) * 1000000;
}

/* Marks a connection as lost, so that it is tried again. Its requests in flight have no answer and will be
 * replaced. Fails if the service has been gone for too long, or if it closed the connection before it ever
 * answered on it, because then it refuses the connection. */
static int connection_lose(struct run *r, struct connection *c)
{
	if (c->is_lost)
		return 0;
	if (!c->is_served)
		return refused(r, c);
	r->why = (struct failure){ 0 };
	tmactl_refused(c->client, &r->why);
	if (tma_fd(c->client) >= 0)
		epoll_ctl(r->epoll, EPOLL_CTL_DEL, tma_fd(c->client), NULL);
	connection_count(r, c, clock_ns());
	if (!c->gone_ns)
		c->gone_ns = clock_ns();
	c->is_lost = true;
	lives_lose(&r->lives, c->life);
	r->n_lost++;
	return has_patience(r, c) ? 0 : gave_up(r);
}

/* Makes one attempt to restore a lost connection; the library then registers the regions and prepares the
 * plan again. Sends no new requests if the run is over. Returns 0 also if the attempt fails, as long as there
 * is time for more. */
static int connection_retry(struct run *r, struct connection *c, bool over)
{
	const uint32_t life = lives_next(&r->lives);
	uint64_t now;

	if ((tma_fd(c->client) < 0 ? tma_connect(c->client, r->t->socket) : tma_restore(c->client)) < 0)
		return has_patience(r, c) ? 0 : gave_up(r);
	now = clock_ns();
	connection_count(r, c, now); /* Requests of the old connection may end only now. */
	c->is_lost = false;
	r->n_lost--;
	c->life = life;
	if (connection_add(r, c) < 0)
		return -1;
	return over ? 0 : connection_ask(r, c, now);
}

/* Tries all lost connections, up to the first that still cannot connect: the others could not either. */
static int retry_all(struct run *r, bool over)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->load->connections && !rc; i++) {
		struct connection *c = &r->connections[i];

		if (!c->is_lost)
			continue;
		rc = connection_retry(r, c, over);
		if (c->is_lost)
			break;
	}
	return rc;
}

/* ---- The loop --------------------------------------------------------------------------------------- */

static int on_ready(struct run *r, struct connection *c, bool over)
{
	uint64_t now;
	int rc;

	if (c->is_lost)
		return 0;
	rc = tma_dispatch(c->client);
	if (rc < 0 && !is_gone(rc))
		return refused(r, c);
	now = clock_ns();
	r->result->ns = now - r->start_ns;
	if (connection_count(r, c, now) || rc < 0)
		return connection_lose(r, c);
	return over ? connection_watch(r, c) : connection_ask(r, c, now);
}

static bool is_over(const struct run *r, uint64_t now)
{
	return *r->load->stop || now - r->start_ns >= r->load->duration_ns;
}

/* Reports progress, measured by time or by requests, whichever is further. */
static void tell(const struct run *r, uint64_t now)
{
	const struct load *load = r->load;
	double by_time = (double)(now - r->start_ns) / (double)load->duration_ns;
	double by_count = (double)r->result->latency.count / (double)load->requests;

	if (load->progress)
		load->progress(load->progress_arg, r->result, by_time > by_count ? by_time : by_count);
}

static int run_loop(struct run *r)
{
	struct epoll_event events[EVENTS];
	uint64_t end = 0, told = 0, tried = 0, now;
	int n = 0, rc = 0;

	r->start_ns = clock_ns();
	for (uint32_t i = 0; i < r->load->connections && !rc; i++)
		rc = connection_ask(r, &r->connections[i], clock_ns());
	while (!rc && (r->under_way || (r->n_lost && !end))) {
		n = epoll_wait(r->epoll, events, EVENTS, r->n_lost ? RETRY_MS : LOOK_MS);
		if (n < 0 && errno != EINTR)
			return fail(r->failure, EXIT_FAILED, "epoll_wait failed (%s)", strerror(errno));
		now = clock_ns();
		if (!end && is_over(r, now))
			end = now;
		if (now - told >= LOOK_MS * UINT64_C(1000000)) {
			told = now;
			tell(r, now);
		}
		if (end && now - end >= DRAIN_NS)
			return fail(r->failure, EXIT_FAILED, "requests went unanswered for %d s",
			            (int)(DRAIN_NS / 1000000000));
		for (int i = 0; i < n && !rc; i++)
			rc = on_ready(r, events[i].data.ptr, end);
		if (!rc && r->n_lost && now - tried >= RETRY_MS * UINT64_C(1000000)) {
			tried = now;
			rc = retry_all(r, end);
		}
	}
	return rc;
}
