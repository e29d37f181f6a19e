/* tmad: parses its options, serves until it is asked to stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "options.h"
#include "server.h"

enum exit_code {
	EXIT_STOPPED = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
};

static int serve(const struct options *options)
{
	struct server *server = malloc(sizeof *server);
	struct error err;

	if (!server) {
		log_line(LOG_LEVEL_ERROR, "no memory to start");
		return EXIT_FAILED;
	}
	if (server_init(server, options, &err) < 0) {
		log_line(LOG_LEVEL_ERROR, "%s", err.message);
		free(server);
		return EXIT_FAILED;
	}
	if (!server_run(server)) {
		log_line(LOG_LEVEL_WARNING, "stopped, with descriptors that do not close");
		_exit(EXIT_STOPPED); /* threads still use the server */
	}
	server_deinit(server);
	free(server);
	log_line(LOG_LEVEL_INFO, "stopped");
	return EXIT_STOPPED;
}

int main(int argc, char **argv)
{
	struct options options;
	struct error err;

	if (options_parse(&options, argc, argv, &err) < 0) {
		fprintf(stderr, "tmad: %s (tmad --help lists the options)\n", err.message);
		return EXIT_USAGE;
	}
	switch (options.action) {
	case OPTIONS_HELP:
		options_print_help();
		return EXIT_STOPPED;
	case OPTIONS_VERSION:
		printf("tmad %s\n", PACKAGE_VERSION);
		return EXIT_STOPPED;
	case OPTIONS_RUN:
		break;
	}
	log_init(options.log_level);
	signal(SIGPIPE, SIG_IGN); /* of a log that nobody reads any more */
	return serve(&options);
}
