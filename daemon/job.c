/* Submission, completion and reuse of jobs. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "region.h"
#include "server.h"
#include "session.h"

struct job {
	struct engine_job run;
	struct session *session;
	uint32_t msgid;
	const struct method *method;
	struct plan_entry *plan;
	struct region *dst;
	struct region *src;
	struct charge charge;
	uint64_t start_ns;
	struct job *next_free;
};

static void on_job_done(struct engine_job *run);

static struct job *job_new(struct server *server)
{
	struct job *job = server->free_jobs;

	if (!job)
		return calloc(1, sizeof *job);
	server->free_jobs = job->next_free;
	memset(job, 0, sizeof *job);
	return job;
}

static void job_free(struct server *server, struct job *job)
{
	job->next_free = server->free_jobs;
	server->free_jobs = job;
}

void jobs_free_kept(struct server *server)
{
	struct job *job;

	while ((job = server->free_jobs)) {
		server->free_jobs = job->next_free;
		free(job);
	}
}

int job_submit(struct session *session, uint32_t msgid, const struct method *method, struct plan_entry *plan,
               struct job_tensor dst, struct job_tensor src, struct error *err)
{
	struct server *server = session->server;
	struct job *job = job_new(server);
	int r;

	if (!job) {
		plan_entry_unref(plan);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a job");
	}
	r = charge_take(&job->charge, &server->accounts, session->account, CHARGE_JOBS, 1, err);
	if (r < 0) {
		plan_entry_unref(plan);
		job_free(server, job);
		return r;
	}

	job->session = session;
	job->msgid = msgid;
	job->method = method;
	job->plan = plan;
	job->dst = dst.region;
	job->src = src.region;
	job->start_ns = uv_hrtime();
	job->run = (struct engine_job){
		.move = { .transform = &plan->transform,
		          .plan = &plan->plan,
		          .dst = dst.region->memory,
		          .src = src.region->memory,
		          .dst_offset = dst.offset,
		          .src_offset = src.offset },
		.on_done = on_job_done,
	};
	region_use(job->dst);
	region_use(job->src);
	session->jobs++;
	engine_submit(server->engine, session->stream, &job->run);
	return 0;
}

static void answer(struct job *job)
{
	struct server *server = job->session->server;
	enum family family = job->plan->plan.family;
	struct msg_transform_done done = {
		.path = bytes_of(family_names[family]),
		.bytes = job->plan->transform.bytes,
		.ns = job->run.ns,
	};
	struct error err;

	if (job->run.status == STATUS_DEVICE_LOST && server->state == SERVER_RUNNING)
		penalties_suspect(&server->penalties, job->session->account->uid, uv_hrtime() / 1000000);
	if (job->run.status < 0) {
		error_set(&err, job->run.status, "%s: %s", job->method->name,
		          status_meaning(job->run.status));
		session_refuse(job->session, job->msgid, job->method, &err);
		return;
	}
	metrics_count_transform(&server->metrics, family, done.bytes, uv_hrtime() - job->start_ns);
	session_reply(job->session, job->msgid, job->method, &done, -1);
}

static void on_job_done(struct engine_job *run)
{
	struct job *job = (struct job *)run; /* its first member */
	struct session *session = job->session;
	struct server *server = session->server;
	struct account *account = session->account;

	answer(job);
	region_unuse(job->dst);
	region_unuse(job->src);
	plan_entry_unref(job->plan);
	charge_release(&job->charge);
	job_free(server, job);
	turns_wake_waiting(server, account);
	session->jobs--;
	session_settle(session);
}
