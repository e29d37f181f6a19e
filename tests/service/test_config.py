"""Settings in files: what goes before what, what is refused and how, --check-config, and a reload of a live service."""
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import FAULTY, NATIVE, SOURCE, TMAD, Memory, RpcError, Tmad, pack_request, scaled, tensor, wait_until

# Made by make, beside the programs; a tarball has it among the sources.
SHIPPED = next((path for path in (os.path.join(os.environ.get("TEST_BUILDDIR") or "build", "daemon/tmad.conf"),
                                  os.path.join(SOURCE, "daemon/tmad.conf")) if os.path.exists(path)), None)
FATAL = 6666  # bytes; a copy of so many loses the device of tests/support/faulty.c


def run_tmad(*args, **options):
    """A tmad that is expected to end by itself."""
    return subprocess.run([TMAD, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=scaled(20), check=False, **options)


class ConfigCase(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmad-config-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.file = os.path.join(self.directory, "tmad.conf")

    def write(self, text, name="tmad.conf"):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def check(self, *args):
        return run_tmad(f"--config={self.file}", *args, "--check-config")

    def start(self, *args, **kwargs):
        tmad = Tmad(f"--config={self.file}", *args, **kwargs)
        self.addCleanup(tmad.stop)
        return tmad

    def limits(self, tmad):
        with tmad.rpc() as rpc:
            return rpc.call("info")["limits"]


class Files(ConfigCase):
    def test_what_goes_before_what(self):
        self.write("[limits]\nconnections = 101\nplans_per_uid = 102\nregions-per-uid = 103\n")
        self.write("[limits]\nplans-per-uid = 202\nregions_per_uid = 203\n", "tmad@one.conf")
        limits = self.limits(self.start("--instance=one", "--regions_per_uid=303"))
        self.assertEqual([limits[name] for name in ("connections", "plans_per_uid", "regions_per_uid", "message_fds")],
                         [101, 202, 303, 4])
        limits = self.limits(self.start("--instance=other"))
        self.assertEqual([limits[name] for name in ("connections", "plans_per_uid")], [101, 102])

    def test_every_option_of_a_file(self):
        path = os.path.join(self.directory, "s")
        self.write(f"[tmad]\nsocket = {path}\nengine = cpu\nthreads = 2\nlog-level = debug\n")
        with subprocess.Popen([TMAD, f"--config={self.file}"], stderr=subprocess.PIPE, encoding="utf-8") as process:
            line = process.stderr.readline()
            process.terminate()
            process.communicate()
        self.assertIn(f"ready on {path}, engine cpu", line)
        self.assertIn("2 threads", line)

    def test_all_errors_with_their_lines(self):
        self.write("[tmad]\nthreds = 1\nengine=gpu\n\n[limits]\nconnections = 0\nthreads = 1\n[more]\nx = 1\n"
                   "[limits]\nconnections = 7\nno value\n")
        expected = [(2, "threds: there is no such setting; the nearest is threads"),
                    (3, "engine = gpu: it takes one of auto, cpu, cuda"), (6, "connections = 0: it takes a whole number"),
                    (7, "threads: it belongs into section [tmad]"), (8, "[more]: there are sections"),
                    (11, "connections: it is in line 6 already"), (12, "a line is name = value")]
        for done in (self.check(), run_tmad(f"--config={self.file}", "--socket", os.path.join(self.directory, "s"))):
            lines = done.stderr.splitlines()
            self.assertEqual((done.returncode, done.stdout, len(lines)), (2, "", len(expected)), done.stderr)
            for line, (number, words) in zip(lines, expected):
                self.assertTrue(line.startswith(f"tmad: {self.file}:{number}: {words}"), line)

    def test_errors_of_both_files(self):
        self.write("[tmad]\nx = 1\n")
        self.write("[tmad]\ny = 1\n", "tmad@a.conf")
        done = self.check("--instance=a")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 2), done.stderr)
        self.assertIn("tmad.conf:2: x", done.stderr)
        self.assertIn("tmad@a.conf:2: y", done.stderr)

    def test_check_config(self):
        self.write("[tmad]\nthreads = 1\n")
        done = self.check("--instance=a")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{self.file}: read\n{self.directory}/tmad@a.conf: not there\nok\n")
        done = run_tmad("--config=", "--check-config")
        self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)

    def test_what_is_no_file(self):
        fifo = os.path.join(self.directory, "fifo")
        os.mkfifo(fifo)
        large = self.write(b"\n" * 65537, "large")
        for path, words in ((os.path.join(self.directory, "none"), "No such file"), (self.directory, "not a regular file"),
                            (fifo, "not a regular file"), (large, "at most 65536 bytes")):
            done = run_tmad(f"--config={path}", "--check-config")
            self.assertEqual((done.returncode, done.stdout), (2, ""), path)
            self.assertIn(f"{path}: ", done.stderr)
            self.assertIn(words, done.stderr)

    @unittest.skipIf(os.geteuid() == 0, "root reads everything")
    def test_a_file_that_may_not_be_read(self):
        os.chmod(self.write(""), 0)
        done = self.check()
        self.assertEqual(done.returncode, 2)
        self.assertIn("Permission denied", done.stderr)

    def test_deadlines_of_centuries(self):
        """In nanoseconds they leave 64 bits: of the first nothing would be left, the second would be over."""
        self.write("[limits]\nframe_deadline_ms = 288230376151711744\nwait_deadline_ms = 9223372036854775807\n")
        with self.start().rpc() as rpc, Memory(8192) as memory:
            region = memory.register(rpc)
            msgid = rpc.request("copy", {"dst": tensor(region, [8]), "src": tensor(region, [8], offset=64),
                                         "wait": {"region": region, "offset": 4096, "value": 1}})
            self.assertEqual(select.select([rpc.socket], [], [], 0.5)[0], [], "it waits")
            ping = pack_request(7, "ping")
            rpc.send(ping[:3])
            self.assertEqual(select.select([rpc.socket], [], [], 0.5)[0], [], "the rest may come")
            rpc.send(ping[3:])
            memory.map[4096] = 1
            replies = {message[1]: message[2] for message in (rpc.receive(), rpc.receive())}
            self.assertEqual(replies, {msgid: None, 7: None})

    def test_names_of_instances(self):
        self.write("")
        for name in ("", "a/b", "../tmad", ".", "a b", "x" * 65):
            self.assertEqual(self.check(f"--instance={name}").returncode, 2, name)
        for name in ("0", "GPU-8f2f3ce0-1a2b", "a_b.c:d"):
            self.assertEqual(self.check(f"--instance={name}").returncode, 0, name)


@unittest.skipIf(SHIPPED is None, "not built")
class Shipped(ConfigCase):
    """The file that is installed."""

    def setUp(self):
        super().setUp()
        with open(SHIPPED, encoding="ascii") as file:
            self.text = file.read()

    @staticmethod
    def uncomment(text, name="[a-z_-]+"):
        return re.sub(f"(?m)^#({name} = )", r"\1", text)

    def test_as_it_is(self):
        self.write(self.text)
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(self.text, "(?m)^[^#[\n]", "all of it is a comment")

    def test_every_setting_is_there_and_right(self):
        names = re.findall("(?m)^#([a-z_-]+) = ", self.text)
        asked = [name for name in re.findall(r"(?m)^  --([a-z-]+)", run_tmad("--help").stdout)
                 if name not in ("config", "instance", "check-config", "help", "version")]
        self.assertEqual([name.replace("_", "-") for name in names], asked)
        for name in names:
            self.write(self.uncomment(self.text, name))
            done = self.check(*(["--engine=cuda"] if name == "device" else []))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.write(self.uncomment(self.text))
        done = self.check("--engine=cuda")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_its_limits_are_the_defaults(self):
        with Tmad() as tmad:
            defaults = self.limits(tmad)
        self.write(self.uncomment(self.text[self.text.index("[limits]"):]))
        limits = self.limits(self.start())
        del limits["mapped_bytes_per_uid"], defaults["mapped_bytes_per_uid"]  # of the machine
        self.assertEqual(limits, defaults)


class Manager:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(scaled(20))

    def next(self, key):
        """The next message that has the key: a dict of its lines."""
        while True:
            message = dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines())
            if key in message:
                return message


class ReloadCase(ConfigCase):
    def setUp(self):
        super().setUp()
        self.manager = Manager(self.directory)
        self.addCleanup(self.manager.socket.close)

    def start(self, *args, **kwargs):
        tmad = super().start(*args, env={"NOTIFY_SOCKET": self.manager.path, **kwargs.pop("env", {})}, **kwargs)
        self.manager.next("READY")
        return tmad

    def reload(self, tmad, text=None):
        """Its STATUS at the end."""
        if text is not None:
            self.write(text)
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        tmad.process.send_signal(signal.SIGHUP)
        message = self.manager.next("RELOADING")
        self.assertEqual(message["RELOADING"], "1")
        at = int(message["MONOTONIC_USEC"]) / 1e6
        self.assertLessEqual(before, at)
        self.assertLessEqual(at, time.clock_gettime(time.CLOCK_MONOTONIC))
        return self.manager.next("READY")["STATUS"]


class Reload(ReloadCase):
    def test_says_what_has_changed(self):
        self.write("[limits]\nconnections = 10\n")
        tmad = self.start()
        status = self.reload(tmad, "[tmad]\nthreads = 3\n[limits]\nconnections = 20\ntensor-map-entries = 5\n")
        self.assertRegex(status, r"^Serving on .*; settings read again at \d\d:\d\d:\d\d UTC: 1 changed, 2 wait for a restart")
        log = tmad.log()
        self.assertIn("reload: connections: 10 -> 20\n", log)
        self.assertIn("reload: threads: 0 -> 3; it waits for a restart\n", log)
        self.assertIn("reload: tensor-map-entries: 1024 -> 5; it waits for a restart\n", log)
        limits = self.limits(tmad)
        self.assertEqual((limits["connections"], limits["tensor_map_entries"]), (20, 1024))
        self.assertIn(": 0 changed, 2 wait", self.reload(tmad))
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad, "[limits]\nconnections = 21\n"))

    def test_the_command_line_stays_above(self):
        self.write("")
        tmad = self.start("--connections=10")
        self.assertIn(": 0 changed", self.reload(tmad, "[limits]\nconnections = 20\n"))
        self.assertEqual(self.limits(tmad)["connections"], 10)

    def test_the_log_level(self):
        self.write("[tmad]\nlog-level = error\n")
        tmad = self.start()
        self.assertEqual(tmad.log(), "")
        self.reload(tmad, "[tmad]\nlog-level = notice\n")
        self.assertEqual(tmad.log(), "tmad: reload: log-level: error -> notice\n")

    def test_connections(self):
        """Those that are there stay; new ones are refused until there are fewer."""
        self.write("")
        tmad = self.start()
        clients = [tmad.rpc() for _ in range(5)]
        for client in clients:
            self.addCleanup(client.close)
            client.call("ping")
        self.reload(tmad, "[limits]\nconnections_per_uid = 3\n")
        for client in clients:
            self.assertIs(client.call("ping"), True)
        with tmad.rpc() as refused, self.assertRaises((RpcError, ConnectionError)):
            refused.call("ping")
        self.assertIn("connections_per_uid", tmad.log())
        self.reload(tmad, "[limits]\nconnections_per_uid = 6\n")
        with tmad.rpc() as more:
            self.assertIs(more.call("ping"), True)

    def test_regions(self):
        self.write("")
        tmad = self.start()
        with tmad.rpc() as rpc:
            regions = [rpc.call("region_create", {"size": 4096})["region"] for _ in range(3)]
            self.reload(tmad, "[limits]\nregions_per_uid = 2\n")
            a, b = ({"region": region, "dtype": "uint8", "shape": [4096]} for region in regions[:2])
            rpc.call("copy", {"dst": a, "src": b})
            for held in (3, 2):
                with self.assertRaises(RpcError) as caught:
                    rpc.call("region_create", {"size": 4096})
                self.assertIn(f"at most 2 regions for a uid; {held} in use, ", caught.exception.message)
                rpc.call("region_release", {"region": regions.pop()})
            rpc.call("region_create", {"size": 4096})

    def test_plans(self):
        """The cache shrinks at once, and its plans are made again."""
        self.write("")
        tmad = self.start()
        with tmad.rpc() as rpc:
            a, b = (rpc.call("region_create", {"size": 4096})["region"] for _ in range(2))

            def copy_all():
                before = rpc.call("stats")
                for size in range(100, 110):
                    rpc.call("copy", {"dst": tensor(a, [size]), "src": tensor(b, [size])})
                after = rpc.call("stats")
                return after["plan_cache"]["misses"] - before["plan_cache"]["misses"]

            self.assertEqual(copy_all(), 10)
            self.assertEqual(copy_all(), 0)
            self.reload(tmad, "[limits]\nplan-cache-entries = 0\n")
            self.assertEqual(copy_all(), 10)
            self.reload(tmad, "[limits]\nplan-cache-entries = 64\n")
            self.assertEqual(copy_all(), 10)
            self.assertEqual(copy_all(), 0)

    def test_idle(self):
        """A deadline that was not there ends who does nothing; one that is gone ends nobody."""
        self.write("")
        tmad = self.start()
        with tmad.rpc() as rpc:
            rpc.call("ping")
            self.reload(tmad, "[limits]\nidle_deadline_ms = 50\n")
            self.assertIsNone(rpc.receive())
        self.reload(tmad, "")
        with tmad.rpc() as rpc:
            rpc.call("ping")
            time.sleep(0.3)
            self.assertIs(rpc.call("ping"), True)

    def test_requests_that_waited_go_on(self):
        """A user's only transform waits for a point of a timeline; a higher limit lets the next request through."""
        self.write("[limits]\njobs_per_uid = 1\nwait_deadline_ms = 600000\n")
        tmad = self.start()
        with tmad.rpc() as held, tmad.rpc() as rpc:
            word = held.call("region_create", {"size": 8192})["region"]
            held.request("copy", {"dst": tensor(word, [8]), "src": tensor(word, [8], offset=64),
                                  "wait": {"region": word, "offset": 4096, "value": 1}})
            msgid = rpc.request("ping")
            while select.select([rpc.socket], [], [], 0.5)[0]:  # it came before the transform
                rpc.receive()
                msgid = rpc.request("ping")
            self.reload(tmad, "[limits]\njobs_per_uid = 2\nwait_deadline_ms = 600000\n")
            self.assertEqual(rpc.receive()[1:3], [msgid, None])

    def test_a_broken_file_changes_nothing(self):
        self.write("[limits]\nconnections = 10\n")
        tmad = self.start()
        with tmad.rpc() as rpc:
            status = self.reload(tmad, "[limits]\nconnections = 20\nplans-per-uid = none\nx = 1\n")
            self.assertIn(f"the settings were broken and those of before go on: {self.file}:3: plans-per-uid = none", status)
            self.assertIs(rpc.call("ping"), True)
        self.assertEqual(self.limits(tmad)["connections"], 10)
        log = tmad.log()
        self.assertIn(f"tmad: reload: {self.file}:3: plans-per-uid = none: it takes a whole number", log)
        self.assertIn(f"tmad: reload: {self.file}:4: x: there is no such setting", log)
        self.assertIn("tmad: reload: nothing has changed\n", log)
        os.unlink(self.file)
        self.assertIn("No such file", self.reload(tmad))
        self.assertIn(": 1 changed", self.reload(tmad, "[limits]\nconnections = 20\n"))

    def test_many_at_once(self):
        """Each that comes is served by itself or by one after it; the last file counts."""
        self.write("")
        tmad = ConfigCase.start(self)  # of its messages too many would wait
        for n in range(1, 200):
            self.write(f"[limits]\nconnections = {n + 100}\n", "next")
            os.replace(os.path.join(self.directory, "next"), self.file)
            tmad.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.limits(tmad)["connections"] == 299, "the last file counts")

    def test_while_it_starts(self):
        """The kernel sends it as the file is read for the first time (F_NOTIFY): it is served when the loop runs."""
        self.write("[limits]\nconnections = 10\n")

        def notify():
            directory = os.open(self.directory, os.O_RDONLY)
            os.set_inheritable(directory, True)
            fcntl.fcntl(directory, fcntl.F_SETSIG, signal.SIGHUP)
            fcntl.fcntl(directory, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
            return directory

        try:
            os.close(notify())
        except OSError:
            self.skipTest("a kernel without F_NOTIFY")
        tmad = Tmad(f"--config={self.file}", start=False)
        self.addCleanup(tmad.stop)
        tmad.start(close_fds=False, preexec_fn=notify)
        wait_until(lambda: "tmad: reload: 0 settings changed" in tmad.log(), "it has been served")

    def test_while_it_stops(self):
        self.write("")
        tmad = self.start()
        tmad.process.send_signal(signal.SIGHUP)
        tmad.process.send_signal(signal.SIGTERM)
        tmad.process.send_signal(signal.SIGHUP)
        self.assertEqual(tmad.process.wait(scaled(10)), 0)


@unittest.skipUnless(NATIVE, "an emulator is not what execv starts again")
class Lost(ReloadCase):
    """A service that starts again in place, because its device was lost, while its files change."""

    def lose(self, tmad):
        with tmad.rpc() as rpc:
            dst, src = (rpc.call("region_create", {"size": FATAL, "kind": "memfd"})["region"] for _ in range(2))
            with self.assertRaises(RpcError):
                rpc.call("copy", {"dst": tensor(dst, [FATAL]), "src": tensor(src, [FATAL])})
        return self.manager.next("READY")["STATUS"]

    def start(self, *args, **kwargs):
        return super().start(*args, engine="cuda", program=FAULTY, **kwargs)

    def test_a_broken_file_does_not_stop_it(self):
        self.write("[limits]\nconnections = 10\n")
        tmad = self.start()
        self.reload(tmad, "[limits]\nconnections = 20\nplans-per-uid = 7\n")
        self.write("[limits\nconnections = 30\n")
        for _ in range(2):
            self.lose(tmad)
            limits = self.limits(tmad)
            self.assertEqual((limits["connections"], limits["plans_per_uid"]), (20, 7))
        log = tmad.log()
        self.assertIn(f"tmad: {self.file}:1: [limits: a section's name ends with ]", log)
        self.assertEqual(log.count("tmad: the settings of before the restart go on\n"), 2, log)
        self.assertIn(": 1 changed", self.reload(tmad, "[limits]\nconnections = 40\nplans-per-uid = 7\n"))

    def test_a_good_file_counts(self):
        self.write("[limits]\nconnections = 10\n")
        tmad = self.start()
        self.write("[limits]\nconnections = 30\n")
        self.lose(tmad)
        self.assertEqual(self.limits(tmad)["connections"], 30)

    def test_settings_leave_the_environment(self):
        self.write("")
        tmad = self.start()
        self.lose(tmad)
        self.lose(tmad)
        self.assertEqual(self.limits(tmad)["connections"], 4096)


tap.main()
