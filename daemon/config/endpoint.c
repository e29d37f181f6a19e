/* SPDX-License-Identifier: Apache-2.0 */
/* Parses addresses without a resolver, so that no configuration of the machine can change their meaning. */
#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static int refuse_endpoint(struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "it takes unix:PATH, 127.0.0.1:PORT, [::1]:PORT or localhost:PORT, which only this "
	                 "machine reaches");
}

static int parse_path(struct endpoint *ret, const char *path, struct error *err)
{
	struct sockaddr_un address;

	if (socket_address(path, &address, &ret->len) < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "it takes unix:PATH with a path of 1 to %zu bytes", SOCKET_PATH_BYTES - 1);
	memcpy(&ret->address, &address, sizeof address);
	snprintf(ret->path, sizeof ret->path, "%s", path);
	return 0;
}

/* Sets ret->address to host and port. Returns false if host is not a loopback address. port is in network
 * byte order. */
static bool parse_host(struct endpoint *ret, const char *host, in_port_t port)
{
	struct sockaddr_in *four = (struct sockaddr_in *)&ret->address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&ret->address;

	if (!strcmp(host, "[::1]")) {
		*six = (struct sockaddr_in6){ .sin6_family = AF_INET6,
			                      .sin6_addr = IN6ADDR_LOOPBACK_INIT,
			                      .sin6_port = port };
		ret->len = sizeof *six;
		return true;
	}
	*four = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port };
	ret->len = sizeof *four;
	if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &four->sin_addr) != 1)
		return false;
	return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

int endpoint_parse(struct endpoint *ret, const char *text, struct error *err)
{
	struct endpoint endpoint = { 0 };
	const char *colon = strrchr(text, ':');
	char host[32], *end;
	unsigned long port;
	int r = 0;

	if (!strncmp(text, ENDPOINT_UNIX, strlen(ENDPOINT_UNIX))) {
		r = parse_path(&endpoint, text + strlen(ENDPOINT_UNIX), err);
	} else if (!colon || colon == text || (size_t)(colon - text) >= sizeof host) {
		r = refuse_endpoint(err);
	} else {
		snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
		errno = 0;
		port = strtoul(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end ||
		    !parse_host(&endpoint, host, htons((in_port_t)port)))
			r = refuse_endpoint(err);
		else if (errno || port > UINT16_MAX)
			r = error_set(err, STATUS_INVALID_ARGUMENT, "port %s is not between 1 and %d",
			              colon + 1, UINT16_MAX);
	}
	if (r == 0)
		*ret = endpoint;
	return r;
}
