/* SPDX-License-Identifier: Apache-2.0 */
/* Parses addresses without a resolver, so that they mean nothing but what is written here. */
#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNIX        "unix:"
#define SOCKET_MODE 0660

static int refuse(struct error *err)
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

/* Whether host (without port) is a loopback address. */
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

	if (!strncmp(text, UNIX, strlen(UNIX))) {
		r = parse_path(&endpoint, text + strlen(UNIX), err);
	} else if (!colon || colon == text || (size_t)(colon - text) >= sizeof host) {
		r = refuse(err);
	} else {
		snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
		errno = 0;
		port = strtoul(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end ||
		    !parse_host(&endpoint, host, htons((in_port_t)port)))
			r = refuse(err);
		else if (errno || port > UINT16_MAX)
			r = error_set(err, STATUS_INVALID_ARGUMENT, "port %s is not between 1 and %d",
			              colon + 1, UINT16_MAX);
	}
	if (r == 0)
		*ret = endpoint;
	return r;
}

static int listen_on_port(const struct endpoint *endpoint, int backlog)
{
	int fd = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	/* Connections of the last life may not have ended yet. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (const struct sockaddr *)&endpoint->address, endpoint->len) == 0 &&
	    listen(fd, backlog) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

int endpoint_listen(const struct endpoint *endpoint, int backlog, struct error *err)
{
	const char *path = endpoint->path;
	int fd = *path ? socket_listen(path, backlog, SOCKET_MODE) : listen_on_port(endpoint, backlog);
	char name[ENDPOINT_NAME];

	if (fd >= 0)
		return fd;
	endpoint_name(endpoint, name);
	if (fd == -EADDRINUSE)
		return error_set(err, STATUS_ALREADY_EXISTS,
		                 "%s: another server listens there; stop it, or choose another --metrics",
		                 name);
	if (fd == -EEXIST)
		return error_set(err, STATUS_ALREADY_EXISTS, "%s: a file that is not a socket is in the way",
		                 name);
	return error_set(err, STATUS_PERMISSION, "%s: %s", name, strerror(-fd));
}

void endpoint_of(struct endpoint *ret, int fd)
{
	*ret = (struct endpoint){ .len = sizeof ret->address };
	if (getsockname(fd, (struct sockaddr *)&ret->address, &ret->len) < 0)
		ret->len = 0;
	socket_path(fd, ret->path);
}

void endpoint_name(const struct endpoint *endpoint, char name[ENDPOINT_NAME])
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&endpoint->address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&endpoint->address;
	char host[INET6_ADDRSTRLEN] = "";

	if (*endpoint->path)
		snprintf(name, ENDPOINT_NAME, UNIX "%s", endpoint->path);
	else if (endpoint->len > 0 && endpoint->address.ss_family == AF_INET)
		snprintf(name, ENDPOINT_NAME, "http://%s:%d",
		         inet_ntop(AF_INET, &four->sin_addr, host, sizeof host), ntohs(four->sin_port));
	else if (endpoint->len > 0 && endpoint->address.ss_family == AF_INET6)
		snprintf(name, ENDPOINT_NAME, "http://[%s]:%d",
		         inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host), ntohs(six->sin6_port));
	else
		snprintf(name, ENDPOINT_NAME, "a socket without an address");
}
