# SPDX-License-Identifier: Apache-2.0
"""Metrics: what is scraped is what was done, and what dashboard and alerts are made of is there."""
import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from scrape import OPENMETRICS, Metrics, check_openmetrics, get, scrape
from tmad import BUILD, ENGINE, SOURCE, Memory, Rpc, RpcError, Tmad, scaled, tensor, wait_until

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

PROMTOOL = shutil.which("promtool")
OTHER = 12345  # a user
UIDS = 256     # with rows of their own
FAMILIES = {"memcpy", "tile_copy", "tile_transpose", "strided", "fill", "convert"}
SECOND = 10**9


@contextlib.contextmanager
def metered(*args, **kwargs):
    """Yields a tmad that is open to every user, and the address of its metrics."""
    with Tmad(*args, start=False, **kwargs) as tmad:
        address = f"unix:{tmad.directory}/m"
        tmad.command.append(f"--metrics={address}")
        tmad.start()
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        yield tmad, address


def connect(tmad, uid):
    """Connects as that user; the kernel tells the service who the caller is at that moment."""
    before = os.geteuid()
    if uid != before:
        os.seteuid(uid)
    try:
        return Rpc(tmad.path)
    finally:
        if uid != before:
            os.seteuid(before)


class Work:
    """Requests of one user, and the expected metrics."""

    def __init__(self, tmad, uid):
        self.rpc = connect(tmad, uid)
        self.src, self.dst = Memory(65536), Memory(65536)
        self.regions = [memory.register(self.rpc) for memory in (self.src, self.dst)]
        self.requests = {"region_register": 2}
        self.bytes, self.ns, self.errors, self.transforms = {}, {}, {}, 0

    def call(self, method, params=None):
        self.requests[method] = self.requests.get(method, 0) + 1
        return self.rpc.call(method, params)

    def move(self, method, shape, dtype="uint32", **fields):
        src, dst = tensor(self.regions[0], shape, "uint32"), tensor(self.regions[1], shape, dtype)
        if "perm" in fields:
            dst["shape"] = [shape[axis] for axis in fields["perm"]]
        done = self.call(method, {"dst": dst, "src": src, **fields})
        self.bytes[done["path"]] = self.bytes.get(done["path"], 0) + done["bytes"]
        self.ns[done["path"]] = self.ns.get(done["path"], 0) + done["ns"]
        self.transforms += 1

    def fail(self, name, method, params):
        try:
            self.call(method, params)
        except RpcError as error:
            assert error.name == name, error
            self.errors[name] = self.errors.get(name, 0) + 1
            return
        raise AssertionError(f"{method} went well")

    def close(self):
        self.rpc.close()
        self.src.close()
        self.dst.close()


def summed(*maps):
    total = {}
    for key, value in ((key, value) for each in maps for key, value in each.items()):
        total[key] = total.get(key, 0) + value
    return total


class Values(unittest.TestCase):
    uids = (os.geteuid(), OTHER) if os.geteuid() == 0 else (os.geteuid(),)

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.tmad, self.address = stack.enter_context(metered("--plan-cache-entries=2"))
        self.works = [stack.enter_context(contextlib.closing(Work(self.tmad, uid))) for uid in self.uids]

    def work(self):
        for n, work in enumerate(self.works, 1):
            for _ in range(3 * n):
                work.move("copy", [16384 // n])
            work.move("transpose", [100, 130], perm=[1, 0])
            work.move("copy", [64, 64 * n])
            work.move("copy", [64, 64], "uint16", cast="saturate", scale=n)
            work.fail("OUT_OF_RANGE", "copy", {"dst": tensor(work.regions[1], [65537]), "src": tensor(work.regions[0], [65537])})
            work.fail("NOT_FOUND", "region_release", {"region": 1 << 60})
            work.fail("INVALID_ARGUMENT", "copy", {})

    def test_what_was_done(self):
        self.work()
        metrics = scrape(self.address)
        by_method = summed(*(work.requests for work in self.works))
        for labels, value in metrics.of("tmad_requests_total").items():
            method = labels[0].removeprefix("method=")
            if method not in ("ping", "copy", "refused"):  # ping is how the test knows that it runs
                self.assertEqual(value, by_method.get(method, 0), method)
        refused = len(self.works)  # {} is no copy
        self.assertEqual(metrics["tmad_requests_total", "method=refused"], refused)
        self.assertEqual(metrics["tmad_requests_total", "method=copy"], by_method["copy"] - refused)
        self.assertEqual(sum(metrics.of("tmad_requests_total").values()),
                         sum(metrics.of("tmad_uid_requests_total").values()))
        paths = summed(*(work.bytes for work in self.works))
        self.assertEqual({path: metrics["tmad_moved_bytes_total", f"path={path}"] for path in FAMILIES},
                         {path: paths.get(path, 0) for path in FAMILIES})
        times = summed(*(work.ns for work in self.works))
        for path in FAMILIES:
            self.assertEqual(metrics["tmad_device_seconds_total", f"path={path}"] * SECOND, times.get(path, 0), path)
        errors = summed(*(work.errors for work in self.works))
        self.assertEqual({labels[0].removeprefix("status="): value
                          for labels, value in metrics.of("tmad_errors_total").items() if value}, errors)
        self.assertEqual(sum(metrics.of("tmad_transform_duration_seconds_count").values()),
                         sum(work.transforms for work in self.works))

    def test_by_user(self):
        self.work()
        multiprocessors = 2 if ENGINE == "cuda" else 0  # the stand-in's
        metrics = scrape(self.address)
        self.assertEqual(set(metrics.of("tmad_uid_requests_total")), {(f"uid={uid}",) for uid in self.uids})
        for uid, work in zip(self.uids, self.works):
            label = f"uid={uid}"
            ping = metrics["tmad_requests_total", "method=ping"] if uid == os.geteuid() else 0
            self.assertEqual(metrics["tmad_uid_requests_total", label], sum(work.requests.values()) + ping)
            for path in FAMILIES:
                if path not in work.bytes:
                    self.assertNotIn(("tmad_uid_moved_bytes_total", f"path={path}", label), metrics)
                    continue
                self.assertEqual(metrics["tmad_uid_moved_bytes_total", f"path={path}", label], work.bytes[path])
                self.assertEqual(metrics["tmad_uid_device_seconds_total", f"path={path}", label] * SECOND, work.ns[path])
            for status, n in work.errors.items():
                self.assertEqual(metrics["tmad_uid_errors_total", f"status={status}", label], n)
            self.assertEqual(metrics["tmad_uid_transform_duration_seconds_count", label], work.transforms)
            self.assertGreaterEqual(metrics["tmad_uid_transform_duration_seconds_sum", label] * SECOND,
                                    0 if ENGINE == "cuda" else sum(work.ns.values()))
            self.assertAlmostEqual(float(metrics["tmad_uid_multiprocessor_seconds_total", label]),
                                   sum(work.ns.values()) * multiprocessors / SECOND, places=6)
            self.assertEqual(metrics["tmad_uid_mapped_bytes", label], 2 * 65536)
            self.assertEqual(metrics["tmad_uid_regions", label], 2)
            self.assertEqual(metrics["tmad_uid_jobs", label], 0)

    def stats_when_idle(self):
        """A request that has to wait for its turn is input not yet handled: this one, on a slow machine."""
        stats = {}

        def nothing_waits():
            stats.update(self.works[0].rpc.call("stats"))
            return stats["input_bytes"] == 0

        wait_until(nothing_waits, "a request finds none unhandled")
        return stats

    def test_levels_and_limits(self):
        self.work()
        layout = {"dtype": "uint8", "shape": [16]}
        self.works[0].call("plan_prepare", {"dst": layout, "src": layout})
        for work in self.works:
            work.call("table_prepare", {"places": struct.pack("<2Q", work.regions[0], 0)})
        wait_until(lambda: scrape(self.address)["tmad_connections"] == len(self.works), "the first client has gone")
        metrics, info = scrape(self.address), self.works[0].rpc.call("info")
        stats = self.stats_when_idle()
        for name, value in metrics.of("tmad_limit").items():
            self.assertEqual(value, info["limits"][name[0].removeprefix("name=")], name)
        self.assertGreater(len(metrics.of("tmad_limit")), 15)
        self.assertEqual(metrics["tmad_build_info", f"device={info['device']}", f"engine={info['engine']}",
                                 f"version={info['version']}"], 1)
        self.assertEqual(metrics["tmad_engine_up", f"device={info['device']}", f"engine={info['engine']}"], 1)
        self.assertLess(abs(float(metrics["tmad_start_time_seconds"]) - time.time() + stats["uptime_ms"] / 1e3), 5)
        for name in ("connections", "regions", "mapped_bytes", "jobs", "plans", "tables", "queued_bytes", "pending_fds",
                     "outgoing_fds", "input_bytes"):
            self.assertEqual(metrics["tmad_" + name], stats[name], name)
        self.assertEqual(metrics["tmad_mapped_bytes"], 2 * 65536 * len(self.works))
        self.assertEqual((metrics["tmad_plans"], metrics["tmad_tables"]), (1, len(self.works)))
        self.assertGreater(metrics["tmad_table_bytes"], 0)
        self.assertGreater(metrics["tmad_plan_bytes"], 10000)
        for name in ("connections_accepted", "connections_refused", "sessions_ended"):
            self.assertEqual(metrics[f"tmad_{name}_total"], stats[name], name)
        self.assertEqual(metrics["tmad_recoveries_total"], stats["recoveries"])
        for name, cache in (("plan_cache", stats["plan_cache"]), ("tensor_map_cache", stats["tensor_maps"])):
            for counter in ("hits", "misses", "evictions"):
                self.assertEqual(metrics[f"tmad_{name}_{counter}_total"], cache[counter], (name, counter))
            self.assertEqual(metrics[f"tmad_{name}_entries"], cache["entries"])
        self.assertGreater(stats["plan_cache"]["evictions"], 0)
        self.assertEqual({"path=" + path: value for path, value in stats["ns"].items()},
                         {labels[0]: value * SECOND for labels, value
                          in metrics.of("tmad_device_seconds_total").items() if value})

    def test_what_waits(self):
        work = self.works[0]
        region = work.regions[0]
        params = {"dst": tensor(region, [8], offset=64), "src": tensor(region, [8], offset=128),
                  "wait": {"region": region, "offset": 0, "value": 1}}
        first = work.rpc.request("copy", params)
        work.rpc.request("copy", params)
        wait_until(lambda: scrape(self.address)["tmad_jobs"] == 2, "two are queued")
        self.assertEqual(scrape(self.address)["tmad_uid_jobs", f"uid={self.uids[0]}"], 2)
        for request in (first + 1, first):
            work.rpc.request("cancel", {"request": request})
        wait_until(lambda: scrape(self.address)["tmad_jobs"] == 0, "they are given up")

    def test_a_ring(self):
        work = self.works[0]
        self.assertEqual(scrape(self.address)["tmad_rings"], 0)
        if ENGINE == "cpu":
            work.call("ring_open", {"at": [work.regions[0], 0], "entries": 2})
            self.assertEqual(scrape(self.address)["tmad_rings"], 1)
            work.call("ring_close")
            self.assertEqual(scrape(self.address)["tmad_rings"], 0)

    def test_users_who_go_stay_counted(self):
        self.work()
        before = scrape(self.address)
        for work in self.works:
            work.rpc.close()
        gone = wait_until(lambda: (metrics := scrape(self.address))["tmad_connections"] == metrics["tmad_regions"] == 0
                          and metrics, "nobody is connected, and nothing mapped")
        for key, value in before.items():
            if key[0].startswith("tmad_uid") and key[0].endswith(("_total", "_bucket", "_sum", "_count")):
                self.assertEqual(gone[key], value, key)
        uid = self.uids[-1]
        self.assertEqual(gone["tmad_uid_connections", f"uid={uid}"], 0)
        self.assertEqual(gone["tmad_uid_mapped_bytes", f"uid={uid}"], 0)
        with contextlib.closing(connect(self.tmad, uid)) as rpc:
            rpc.call("ping")
            again = scrape(self.address)
            self.assertEqual(again["tmad_uid_requests_total", f"uid={uid}"],
                             before["tmad_uid_requests_total", f"uid={uid}"] + 1)
            self.assertEqual(again["tmad_uid_connections", f"uid={uid}"], 1)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be many users")
class ManyUsers(unittest.TestCase):
    def test_rows_are_bounded(self):
        with metered() as (tmad, address), contextlib.ExitStack() as stack:
            layout = {"dtype": "uint8", "shape": [64]}
            for n, uid in enumerate(range(OTHER, OTHER + UIDS + 40)):
                rpc = connect(tmad, uid)
                stack.enter_context(contextlib.closing(rpc))
                rpc.call("ping")
                with Memory(4096) as memory:
                    region = memory.register(rpc)
                    rpc.call("copy", {"dst": tensor(region, [64]), "src": tensor(region, [64], offset=64)})
                if n % 8 == 0:
                    with self.assertRaises(RpcError):
                        rpc.call("explain", {"dst": layout})
            metrics = scrape(address)
            rows = metrics.of("tmad_uid_requests_total")
            self.assertEqual(len(rows), UIDS + 1)
            # One row is the test's own user, who looked whether the service runs.
            others = 41
            self.assertEqual(metrics["tmad_uid_moved_bytes_total", "path=memcpy", "uid=other"]
                             if ENGINE == "cpu" else others * 128, others * 128)
            self.assertEqual(metrics["tmad_uid_transform_duration_seconds_count", "uid=other"], others)
            self.assertEqual(sum(rows.values()), sum(metrics.of("tmad_requests_total").values()))
            self.assertEqual(sum(metrics.of("tmad_uid_errors_total").values()), 37)
            self.assertEqual(metrics["tmad_uid_connections", "uid=other"], 1)  # of each
            self.assertEqual(metrics["tmad_uid_connections", f"uid={OTHER}"], 1)
            before = self.cpu_ticks(tmad.pid)
            text, start, rounds = get(address).text, time.monotonic(), 20
            for _ in range(rounds):
                self.assertEqual(len(get(address).text.splitlines()), len(text.splitlines()))
            print(f"# a scrape with {UIDS} users: {len(text.splitlines())} lines, {len(text) // 1024} KiB, "
                  f"{(time.monotonic() - start) / rounds * 1e3:.1f} ms, of which the service computed "
                  f"{(self.cpu_ticks(tmad.pid) - before) / os.sysconf('SC_CLK_TCK') / (rounds + 1) * 1e3:.1f} ms",
                  flush=True)
            check_openmetrics(get(address, Accept=OPENMETRICS).text)

    @staticmethod
    def cpu_ticks(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.tmad, cls.address = stack.enter_context(metered())
        work = stack.enter_context(contextlib.closing(Work(cls.tmad, os.geteuid())))
        work.move("copy", [1000])
        work.move("transpose", [100, 130], perm=[1, 0])
        work.fail("NOT_FOUND", "region_release", {"region": 1 << 60})
        cls.text, cls.open = get(cls.address).text, get(cls.address, Accept=OPENMETRICS).text

    def test_who_asks_for_openmetrics_gets_it(self):
        prometheus = f"{OPENMETRICS};q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3"
        for accept in (OPENMETRICS, prometheus):
            response = get(self.address, Accept=accept)
            self.assertEqual(response.getheader("Content-Type"), OPENMETRICS + "; charset=utf-8")
            self.assertTrue(response.text.endswith("# EOF\n"))
        for headers in ({}, {"Accept": "*/*"}, {"Accept": "text/plain"}):
            response = get(self.address, **headers)
            self.assertEqual(response.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
            self.assertNotIn("# EOF", response.text)

    def test_openmetrics_by_its_rules(self):
        types = check_openmetrics(self.open)
        self.assertEqual(types["tmad_requests"], "counter")
        self.assertEqual(types["tmad_build"], "info")
        self.assertEqual(types["tmad_transform_duration_seconds"], "histogram")
        self.assertGreater(len(types), 35)

    def test_both_say_the_same(self):
        self.assertEqual(Metrics(self.text).keys(), Metrics(self.open.replace("# EOF\n", "")).keys())

    @unittest.skipUnless(text_string_to_metric_families, "no python3-prometheus-client")
    def test_openmetrics_by_its_parser(self):
        families = {family.name: family for family in text_string_to_metric_families(self.open)}
        self.assertEqual(families["tmad_moved_bytes"].unit, "bytes")
        self.assertGreater(sum(sample.value for sample in families["tmad_moved_bytes"].samples), 0)

    @unittest.skipUnless(PROMTOOL, "no promtool")
    def test_promtool_has_nothing_to_say(self):
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=self.text, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", timeout=scaled(60), check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_every_metric_says_what_it_is(self):
        helps = dict(re.findall(r"^# HELP (\S+) (.+)$", self.text, re.M))
        for name in Metrics(self.text).names:
            self.assertIn(re.sub(r"(?<=_seconds)_(bucket|sum|count)$", "", name), helps)
        for name, text in helps.items():
            self.assertRegex(text, r"^\S.*\.$", name)


class Rules(unittest.TestCase):
    """What is installed for Prometheus and Grafana."""
    alerts = os.path.join(SOURCE, "systemd/alerts.yml")
    tests = os.path.join(SOURCE, "tests/service/alerts_test.yml")
    dashboard = os.path.join(SOURCE, "systemd/grafana-dashboard.json")

    def promtool(self, *args):
        done = subprocess.run([PROMTOOL, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              encoding="utf-8", timeout=scaled(60), check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    @unittest.skipUnless(PROMTOOL, "no promtool")
    def test_alerts_are_well_formed(self):
        self.assertIn("SUCCESS", self.promtool("check", "rules", self.alerts))

    @unittest.skipUnless(PROMTOOL, "no promtool")
    def test_alerts_fire_when_they_should(self):
        self.assertIn("SUCCESS", self.promtool("test", "rules", self.tests))

    def test_every_alert_is_tested_and_says_what_to_do(self):
        with open(self.alerts, encoding="utf-8") as file:
            text = file.read()
        with open(self.tests, encoding="utf-8") as file:
            tested = set(re.findall(r'alertname="(\w+)"', file.read()))
        alerts = re.findall(r"- alert: (\w+)", text)
        self.assertEqual(set(alerts), tested)
        for word in ("summary:", "description:", "severity:"):
            self.assertEqual(text.count(word), len(alerts), word)

    @staticmethod
    def names_in(text):
        return set(re.findall(r"\btmad_[a-z_]+", text)) - {"tmad_test"}

    def served(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(f'[limits "uid:{os.geteuid()}"]\nplans_per_uid = 7\n')
            file.flush()
            with metered("--config=" + file.name) as (tmad, address), contextlib.closing(Work(tmad, os.geteuid())) as work:
                work.move("copy", [1000])
                work.fail("NOT_FOUND", "region_release", {"region": 1 << 60})
                return scrape(address).names

    def test_what_they_name_is_served(self):
        served = self.served()
        with open(self.alerts, encoding="utf-8") as file:
            named = self.names_in(file.read())
        self.assertGreater(len(named), 10)
        self.assertEqual(named - served, set())

    def test_the_dashboard(self):
        with open(self.dashboard, encoding="utf-8") as file:
            dashboard = json.load(file)
        self.assertEqual(dashboard["__inputs"][0]["name"], "DS_PROMETHEUS")
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        squares = [(x, y) for grid in (panel["gridPos"] for panel in panels)
                   for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])]
        self.assertEqual(len(squares), len(set(squares)), "panels lie upon each other")
        self.assertLess(max(x for x, _ in squares), 24)
        expressions = [target["expr"] for panel in panels for target in panel["targets"]]
        served = self.served()
        for expression in expressions:
            named = self.names_in(expression)
            self.assertTrue(named, expression)
            self.assertEqual(named - served, set(), expression)
        if PROMTOOL:
            rules = [{"record": f"panel:{n}", "expr": expression.replace("$__rate_interval", "5m")}
                     for n, expression in enumerate(expressions)]
            path = os.path.join(BUILD, f"dashboard-{os.getpid()}.json")  # JSON is YAML
            self.addCleanup(os.unlink, path)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            self.assertIn(f"{len(rules)} rules found", self.promtool("check", "rules", path))


if __name__ == "__main__":
    tap.main()
