# SPDX-License-Identifier: Apache-2.0
"""Requests metrics over HTTP, and parses both of their formats strictly."""
import http.client
import re
import socket
from decimal import Decimal

from tmad import scaled

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([0-9.]+)')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "info": {"_info"}, "histogram": {"_bucket", "_sum", "_count"}}


class Connection(http.client.HTTPConnection):
    """A connection to "unix:PATH" or "HOST:PORT"."""

    def __init__(self, address, timeout=20):
        host = "localhost" if address.startswith("unix:") else address
        super().__init__(host, timeout=scaled(timeout))
        self.address = address

    def connect(self):
        self.sock = connect(self.address, self.timeout)


def connect(address, timeout=20):
    if not address.startswith("unix:"):
        host, port = address.rsplit(":", 1)
        return socket.create_connection((host.strip("[]"), int(port)), timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    path = address.removeprefix("unix:")
    sock.connect("\0" + path[1:] if path.startswith("@") else path)
    return sock


def get(address, path="/metrics", method="GET", **headers):
    """Returns the response, with its body in .text."""
    connection = Connection(address)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        response.text = response.read().decode()
        return response
    finally:
        connection.close()


class Metrics(dict):
    """Samples indexed by name and labels, such as metrics["tmad_errors_total", "status=NOT_FOUND"]. Numbers are
    exact."""

    def __init__(self, text):
        super().__init__()
        self.names = set()
        for line in text.splitlines():
            if not line.startswith("#"):
                name, labels, value = _SAMPLE.fullmatch(line).groups()
                assert _LABEL.sub("", labels or "") == "", line
                key = (name, *sorted("=".join(pair) for pair in _LABEL.findall(labels or "")))
                assert key not in self, f"twice: {line}"
                self[key] = Decimal(value)
                self.names.add(name)

    def __missing__(self, key):
        if isinstance(key, str):
            return self[(key,)]
        raise KeyError(key)

    def of(self, name):
        """Returns the samples of a name, by their labels."""
        return {key[1:]: value for key, value in self.items() if key[0] == name}


def scrape(address):
    response = get(address)
    assert response.status == 200, response.status
    return Metrics(response.text)


def check_openmetrics(text):
    """Checks the rules of OpenMetrics 1.0, including those that a scraper need not enforce. Returns the families'
    types."""
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1, "no end"
    types, units, current, bars = {}, {}, None, {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE", "UNIT"), line
            if name != current:
                assert name not in types, f"{name} comes twice"
                current, bars = name, {}
            if word == "TYPE":
                types[name] = rest
            if word == "UNIT":
                assert name.endswith("_" + rest), line
                units[name] = rest
            continue
        name, labels, value = _SAMPLE.fullmatch(line).groups()
        assert name.startswith(current) and name[len(current):] in _SUFFIXES[types[current]], line
        if name.endswith("_bucket"):
            others, _, bound = labels.rpartition(',le="')
            before = bars.setdefault(others, [(-1.0, 0)])
            before.append((float(bound.rstrip('"')), int(value)))
            assert before[-2] < before[-1] and before[-2][1] <= before[-1][1], line
        elif name.endswith("_count"):
            assert bars[labels][-1] == (float("inf"), int(value)), line
    return types
