/* SPDX-License-Identifier: Apache-2.0 */
/* The work queue reads the files, which may block; the loop compares and applies the settings. */
#include "reload.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "daemon/loop/log.h"
#include "proto/status.h"
#include "server.h"

#define VALUE_BYTES 256

struct outcome {
	int changed, waiting;
};

static void on_read(uv_work_t *work);
static void on_have_read(uv_work_t *work, int status);
static struct outcome apply(struct server *server, const struct options *from, const struct options *to);
static void apply_limits(struct server *server, const struct limits *limits,
                         const struct overrides *overrides);

void reload_start(struct server *server)
{
	struct reload *reload = &server->reload;

	if (server->service.state != SERVICE_RUNNING || !reload->started)
		return;
	reload->is_asked_again = reload->is_under_way;
	if (reload->is_under_way)
		return;
	reload->is_under_way = true;
	notify_reloading(&server->notify);
	reload->work.data = server;
	uv_queue_work(&server->service.loop, &reload->work, on_read, on_have_read);
}

const struct config *reload_latest(const struct reload *reload)
{
	return reload->latest ? reload->latest : reload->started;
}

void reload_deinit(struct reload *reload)
{
	config_free(reload->latest);
	reload->latest = NULL;
}

static void on_read(uv_work_t *work)
{
	struct server *server = work->data;

	server->reload.read = config_read(server->reload.argc, server->reload.argv);
}

/* ---- What came of it ---------------------------------------------------------------------------------- */

static void say_error(const char *line)
{
	log_line(LOG_LEVEL_ERROR, "reload: %s", line);
}

static void say_warning(const char *line)
{
	log_line(LOG_LEVEL_WARNING, "reload: %s", line);
}

static void clock_text(char *text, size_t size)
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(text, size, "%H:%M:%S UTC", &tm);
}

static void tell_failed(struct server *server, const struct config *read)
{
	char note[1024], when[32];

	if (read)
		config_say_errors(read, say_error);
	else
		say_error("no memory to read the settings");
	log_line(LOG_LEVEL_ERROR, "reload: nothing has changed");
	clock_text(when, sizeof when);
	snprintf(note, sizeof note, "; at %s the settings had errors and the previous ones stay in force: %s",
	         when, read ? read->error[0] : "no memory");
	notify_ready(&server->notify, note);
}

static void tell_applied(struct server *server, struct outcome outcome)
{
	char note[128], when[32];

	log_line(LOG_LEVEL_INFO, "reload: %d setting%s changed, %d wait%s for a restart", outcome.changed,
	         text_plural((uint64_t)outcome.changed), outcome.waiting, outcome.waiting == 1 ? "s" : "");
	clock_text(when, sizeof when);
	snprintf(note, sizeof note, "; settings reloaded at %s: %d changed, %d wait%s for a restart", when,
	         outcome.changed, outcome.waiting, outcome.waiting == 1 ? "s" : "");
	notify_ready(&server->notify, note);
}

static void finish(struct server *server, struct config *read)
{
	struct reload *reload = &server->reload;

	if (!read || read->n_errors > 0) {
		tell_failed(server, read);
		config_free(read);
		return;
	}
	config_say_warnings(read, say_warning);
	tell_applied(server, apply(server, &reload_latest(reload)->options, &read->options));
	config_free(reload->latest);
	reload->latest = read;
}

static void on_have_read(uv_work_t *work, int status)
{
	struct server *server = work->data;
	struct reload *reload = &server->reload;
	struct config *read = reload->read;

	(void)status; /* the work is never canceled */
	reload->read = NULL;
	reload->is_under_way = false;
	if (server->service.state != SERVICE_RUNNING) {
		config_free(read);
		return;
	}
	finish(server, read);
	if (reload->is_asked_again)
		reload_start(server);
}

/* ---- Applying ----------------------------------------------------------------------------------------- */

/* Returns whether the setting differs, and logs the change. A setting that is given in neither of the two
 * does not differ. */
static bool compare(const struct options *from, const struct options *to, int setting)
{
	char name[SETTING_NAME_BYTES], old[VALUE_BYTES], new[VALUE_BYTES];
	bool at_once = setting_applies(setting) == OPTION_APPLIES_RELOAD;

	/* Its default may have been lowered together with its bound. */
	if (!from->origin[setting].text && !to->origin[setting].text)
		return false;
	setting_value(from, setting, old, sizeof old);
	setting_value(to, setting, new, sizeof new);
	if (!strcmp(old, new))
		return false;
	setting_name(setting, name);
	log_line(LOG_LEVEL_NOTICE, "reload: %s: %s -> %s%s", name, old, new,
	         at_once ? "" : "; it waits for a restart");
	return true;
}

/* Returns the section for the same user, group or cgroup as *whose, or NULL if there is none. */
static const struct override *find_override(const struct overrides *overrides, const struct override *whose)
{
	for (uint32_t i = 0; i < overrides->n; i++)
		if (override_is_like(&overrides->of[i], whose))
			return &overrides->of[i];
	return NULL;
}

static void limit_text(uint64_t value, char text[24])
{
	if (value)
		snprintf(text, 24, "%" PRIu64, value);
	else
		snprintf(text, 24, "as everyone");
}

/* Compares the section of *whose before and after the reload (NULL: there is none) and logs its changes.
 * Returns how many limits differ. */
static int compare_override(const struct override *whose, const struct override *from,
                            const struct override *to)
{
	char who[OVERRIDE_NAME_BYTES], name[SETTING_NAME_BYTES], old[24], new[24];
	int changed = 0;

	override_name(whose, who);
	if (whose->kind == OVERRIDE_CGROUP && !from != !to) {
		log_line(LOG_LEVEL_NOTICE, "reload: %s: new connections are charged %s", who,
		         to ? "to the cgroup" : "as if it had no section");
		changed++;
	}
	for (int i = 0; i < LIMIT_COUNT; i++) {
		limit_text(from ? from->value[i] : 0, old);
		limit_text(to ? to->value[i] : 0, new);
		if (!strcmp(old, new))
			continue;
		setting_name(OPTION_COUNT + i, name);
		log_line(LOG_LEVEL_NOTICE, "reload: %s: %s: %s -> %s", who, name, old, new);
		changed++;
	}
	return changed;
}

/* Logs the limits that differ in sections, and returns their number: first those in sections that exist now,
 * then those in sections that are gone. All changes apply at once. */
static int compare_overrides(const struct overrides *from, const struct overrides *to)
{
	int changed = 0;

	for (uint32_t i = 0; i < to->n; i++)
		changed += compare_override(&to->of[i], find_override(from, &to->of[i]), &to->of[i]);
	for (uint32_t i = 0; i < from->n; i++)
		if (!find_override(to, &from->of[i]))
			changed += compare_override(&from->of[i], &from->of[i], NULL);
	return changed;
}

/* Returns whether the ranges of subordinate uids differ, and logs that. They apply to new connections. */
static bool compare_subuids(const struct subuids *from, const struct subuids *to)
{
	if (subuids_equal(from, to))
		return false;
	log_line(LOG_LEVEL_NOTICE, "reload: ranges of subordinate uids: %zu -> %zu", from->n, to->n);
	return true;
}

/* Applies the settings `to` and returns how many have changed. A change that needs a restart is found by
 * comparing with the settings at the start, so that each reload reports it until the restart. */
static struct outcome apply(struct server *server, const struct options *from, const struct options *to)
{
	const struct options *started = &server->reload.started->options;
	struct outcome outcome = { 0 };

	if (to->log_level > from->log_level)
		log_set_level(to->log_level);
	for (int i = 0; i < SETTING_COUNT; i++) {
		if (setting_stands_in(i) == OPTION_PLACE_LINE)
			continue;
		if (setting_applies(i) == OPTION_APPLIES_RELOAD)
			outcome.changed += compare(from, to, i);
		else
			outcome.waiting += compare(started, to, i);
	}
	outcome.changed += compare_overrides(from->overrides, to->overrides);
	outcome.changed += compare_subuids(from->subuids, to->subuids);
	log_set_level(to->log_level);
	log_set_format(to->log_format);
	devices_tune(&server->service.devices, to->tune);
	server->service.accounts.subuids = to->subuids;
	apply_limits(server, &to->limits, to->overrides);
	return outcome;
}

static void apply_limits(struct server *server, const struct limits *limits,
                         const struct overrides *overrides)
{
	uint64_t idle = server->service.limits.idle_deadline_ms;

	for (int i = 0; i < LIMIT_COUNT; i++)
		if (limit_applies_at_once(i))
			*limits_at(&server->service.limits, i) = *limits_at((struct limits *)limits, i);
	accounts_refresh(&server->service.accounts, overrides);
	connections_each(&server->connections, connection_meet_groups);
	devices_keep_plans(&server->service.devices, server->service.limits.plan_cache_entries);
	if (idle != server->service.limits.idle_deadline_ms)
		connections_watch_idle(&server->connections);
	/* The loop's table of descriptors is made at the start (watch_reserve) and should not grow: libuv
	 * ends the process if it cannot enlarge the table. */
	if (server->service.limits.connections > server->connections.descriptors)
		log_line(LOG_LEVEL_WARNING,
		         "reload: connections: %" PRIu64 ", but there are descriptors for fewer than %" PRIu64
		         "; a restart makes room for more",
		         server->service.limits.connections, server->connections.descriptors);
	connections_each(&server->connections, connection_try_again);
}
