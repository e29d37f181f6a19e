# SPDX-License-Identifier: Apache-2.0
"""Settings in files: what overrides what, what is refused and how, --check-config, and a reload of a live service."""
import ctypes
import fcntl
import grp
import json
import os
import pwd
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
import msgpack
import tap
from cgroup import Cgroup, Peer, skip_unless_peers_have_cgroups
from scrape import scrape
from tmad import (FAULTY, NATIVE, SOURCE, TMAD, Memory, Rpc, RpcError, Tmad, by_engine, own_uid, pack_request, scaled,
                  tensor, tmactl, wait_until)

# Made by make beside the programs; a tarball has it among the sources.
SHIPPED = next((path for path in (os.path.join(os.environ.get("TEST_BUILDDIR") or "build", "daemon/config/tmad.conf"),
                                  os.path.join(SOURCE, "daemon/config/tmad.conf")) if os.path.exists(path)), None)
FATAL = 6666  # bytes; a copy of so many loses the device of tests/support/faulty.c


def run_tmad(*args, **options):
    """Runs a tmad that is expected to end by itself."""
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
                         [101, 202, 303, 253])
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
        expected = [(2, "threds: unknown setting; did you mean threads?"),
                    (3, "engine = gpu: it takes one of auto, cpu, cuda"), (6, "connections = 0: it takes a whole number"),
                    (7, "threads: it belongs in section [tmad]"), (8, "[more]: unknown section; there are"),
                    (11, "connections: it was already set on line 6"), (12, "a line is name = value")]
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
        self.assertEqual(done.stdout, f"{self.file}: read\n{self.directory}/tmad@a.conf: not found\nok\n")
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
        """In nanoseconds such deadlines exceed 64 bits: they must not wrap around to a short time."""
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


class Bounds(ConfigCase):
    """Limits that are impossible to reach because of another limit."""

    pairs = (("connections-per-uid", "connections"), ("behind-waits-per-uid", "jobs-per-uid"),
             ("jobs-behind-wait", "jobs-per-uid"), ("message-fds", "pending-fds-per-uid"),
             ("reply-limit-bytes", "queued-bytes-per-uid"), ("reply-pause-bytes", "reply-limit-bytes"))

    def test_each_is_refused_by_name_and_value(self):
        for less, more in self.pairs:
            with self.subTest(less=less, more=more):
                self.write(f"[limits]\n{less} = 12\n\n{more} = 11\n")
                words = (f"tmad: {self.file}:2: {less} = 12: it may not exceed {more}, which is 11 "
                         f"({self.file}:4: {more} = 11)\n")
                done = self.check()
                self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", words))
                started = run_tmad(f"--config={self.file}", "--socket", os.path.join(self.directory, "s"))
                self.assertEqual((started.returncode, started.stderr), (2, words))
                done = run_tmad("--config=", f"--{less}=12", f"--{more}=11", "--check-config")
                self.assertEqual(done.stderr, f"tmad: --{less}=12: it may not exceed {more}, which is 11 (--{more}=11)\n")

    def test_a_default_is_one_too(self):
        self.write("[limits]\nconnections-per-uid = 5000\nreply-pause-bytes = 2M\n")
        self.assertEqual(self.check().stderr,
                         f"tmad: {self.file}:2: connections-per-uid = 5000: it may not exceed connections, which is 4096 by default\n"
                         f"tmad: {self.file}:3: reply-pause-bytes = 2M: it may not exceed reply-limit-bytes, which is 1048576 by default\n")

    def test_what_is_not_set_is_lowered(self):
        self.write("[limits]\n" + "".join(f"{name} = 3\n" for name in ("connections", "jobs-per-uid", "pending-fds-per-uid",
                                                                       "queued-bytes-per-uid")))
        self.assertEqual(self.check().returncode, 0)
        limits = self.limits(self.start("--queued-bytes-per-uid=100K"))
        self.assertEqual({limits[less.replace("-", "_")] for less, _ in self.pairs}, {3, 102400})
        self.assertEqual((limits["reply_limit_bytes"], limits["reply_pause_bytes"]), (102400, 102400))

    def test_as_large_is_no_larger(self):
        for less, more in self.pairs:
            self.write(f"[limits]\n{less} = 11\n{more} = 11\n")
            self.assertEqual(self.check().returncode, 0, less)


class Units(ConfigCase):
    def test_in_a_file_and_on_the_command_line(self):
        self.write("[limits]\nmapped_bytes_per_uid = 4G\nidle-deadline-ms = 1h\nring_spin_us = 1ms ; a comment\n")
        limits = self.limits(self.start("--wait-deadline-ms=30s", "--list_bytes_per_uid=1.5MiB"))
        self.assertEqual([limits[name] for name in ("mapped_bytes_per_uid", "idle_deadline_ms", "ring_spin_us",
                                                    "wait_deadline_ms", "list_bytes_per_uid")],
                         [4 << 30, 3600000, 1000, 30000, 1572864])

    def test_what_is_refused(self):
        for name, text, words in (
                ("connections", "4K", "it takes a whole number from 1 to 9223372036854775807"),
                ("mapped-bytes-per-uid", "30s", "it takes bytes from 1 to 9223372036854775807, or with a unit such as 64M or 4G"),
                ("idle-deadline-ms", "4G", "it takes milliseconds from 0 to 9223372036854775807, or with a unit such as 500ms, "
                                           "30s, 5min or 1h"),
                ("ring-spin-us", "1d", "it takes microseconds from 0 to 9223372036854775807, or with a unit such as 200us or 1ms")):
            self.write(f"[limits]\n{name} = {text}\n")
            self.assertEqual(self.check().stderr, f"tmad: {self.file}:2: {name} = {text}: {words}\n")

    def test_the_same_in_another_way_has_not_changed(self):
        self.write("[limits]\nconnections = 10\nframe_deadline_ms = 5000\n")
        tmad = self.start()
        self.write("[limits]\nconnections = 11\nframe_deadline_ms = 5s\n")
        tmad.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 1 setting changed" in tmad.log(), "it has been read again")


class Options(ConfigCase):
    def test_the_nearest(self):
        for text, words in (("--threds=4", "--threds=4: unknown option; did you mean --threads?"),
                            ("--log_levl=info", "--log_levl=info: unknown option; did you mean --log-level?"),
                            ("--chek-config", "--chek-config: unknown option; did you mean --check-config?"),
                            ("--regions-per-user=1", "--regions-per-user=1: unknown option; did you mean --regions-per-uid?"),
                            ("--nonsense", "--nonsense: unknown option"), ("-x", "-x: options begin with two hyphens"),
                            ("--help=x", "--help=x: --help takes no argument"), ("--conn=5", "--conn=5: several options begin with that"),
                            ("--threads", "--threads: it needs an argument")):
            done = run_tmad(text)
            self.assertEqual((done.returncode, done.stdout), (2, ""), text)
            self.assertEqual(done.stderr, f"tmad: {words} (tmad --help lists the options)\n")


class Overrides(ConfigCase):
    """Limits of a single user or group."""

    def own(self, text):
        return text.replace("UID", str(os.getuid())).replace("GID", str(os.getgid()))

    def used(self, text, **kwargs):
        self.write(self.own(text))
        return self.limits(self.start(**kwargs))

    def test_a_user_by_number_and_name(self):
        for who in ("uid:UID", "user:" + pwd.getpwuid(os.getuid()).pw_name):
            tmad_limits = self.used(f'[limits]\nregions_per_uid = 7\n[limits "{who}"]\nregions-per-uid = 2\nmapped_bytes_per_uid = 1M\n')
            self.assertEqual([tmad_limits[name] for name in ("regions_per_uid", "mapped_bytes_per_uid", "plans_per_uid")],
                             [2, 1 << 20, 4096])

    def test_the_error_has_the_limit_that_applies(self):
        self.write(self.own('[limits]\nregions_per_uid = 7\n[limits "uid:UID"]\nregions-per-uid = 2\n'))
        with self.start("--regions-per-uid=5").rpc() as rpc:
            for _ in range(2):
                rpc.call("region_create", {"size": 4096})
            with self.assertRaises(RpcError) as caught:
                rpc.call("region_create", {"size": 4096})
            self.assertEqual((caught.exception.name, caught.exception.message),
                             ("QUOTA", "regions_per_uid: this uid's limit on regions is 2; 2 in use, 1 more requested"))

    def test_metrics_have_it(self):
        self.write(self.own('[limits]\nregions_per_uid = 7\n[limits "uid:UID"]\nregions-per-uid = 2\nplans_per_uid = 4096\n'))
        address = f"unix:{self.directory}/m"
        with self.start("--metrics=" + address).rpc() as rpc:
            rpc.call("ping")
            metrics = scrape(address)
        self.assertEqual(metrics.of("tmad_uid_limit"), {("name=regions_per_uid", f"uid={os.getuid()}"): 2})
        self.assertEqual(metrics["tmad_limit", "name=regions_per_uid"], 7)

    def test_others_have_everybodys(self):
        limits = self.used('[limits "uid:4242424"]\nregions-per-uid = 2\n[limits "gid:4242424"]\nregions-per-uid = 3\n')
        self.assertEqual(limits["regions_per_uid"], 4096)

    @unittest.skipIf(os.environ.get("EMULATOR"), "an emulator may not know a peer's groups")
    def test_groups(self):
        """Of several groups the most generous one applies; a user's own section takes precedence."""
        groups = '[limits "gid:GID"]\nregions_per_uid = 3\nplans_per_uid = 30\njobs_per_uid = 30\n'
        self.assertEqual(self.used(groups)["regions_per_uid"], 3)
        limits = self.used(groups + '[limits "uid:UID"]\nplans_per_uid = 5\n')
        self.assertEqual((limits["regions_per_uid"], limits["plans_per_uid"]), (3, 5))
        self.assertEqual(limits["behind_waits_per_uid"], 30, "lowered to jobs_per_uid")
        if os.geteuid() != 0:
            return
        self.write('[limits "gid:70001"]\nregions_per_uid = 11\nplans_per_uid = 40\n'
                   '[limits "gid:70002"]\nregions_per_uid = 12\n[limits "gid:70003"]\nregions_per_uid = 13\n')
        tmad = self.start()
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        for supplementary, expected in (([], (4096, 4096)), ([70001], (11, 40)), ([70001, 70002], (12, 40)),
                                        (list(range(60000, 60400)) + [70003], (13, 4096))):
            with self.subTest(groups=supplementary[-2:]):
                self.assertEqual(self.limits_as(tmad.path, 70000 + len(supplementary), supplementary), expected)

    @staticmethod
    def limits_as(path, uid, groups):
        """Returns the limits reported to a process of that user in these groups."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.setgroups(groups)
                os.setresgid(65534, 65534, 65534)
                os.setresuid(uid, uid, uid)
                with Rpc(path) as rpc:
                    limits = rpc.call("info")["limits"]
                os.write(writer, f"{limits['regions_per_uid']} {limits['plans_per_uid']}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as answer:
            return tuple(int(number) for number in answer.read().split())

    def test_an_instance_s_file_overrides(self):
        self.write(self.own('[limits "uid:UID"]\nregions_per_uid = 2\nplans_per_uid = 3\n'))
        self.write(self.own('[limits "uid:UID"]\nregions_per_uid = 4\n'), "tmad@one.conf")
        limits = self.limits(self.start("--instance=one"))
        self.assertEqual((limits["regions_per_uid"], limits["plans_per_uid"]), (4, 3))

    def test_what_a_transform_may_take_by_user(self):
        self.write(self.own('[limits]\nmultiprocessors = 8\n[limits "uid:UID"]\nmultiprocessors = 2\nhost_threads = 3\n'))
        limits = self.limits(self.start())
        self.assertEqual((limits["multiprocessors"], limits["host_threads"]), (2, 3))

    def test_errors_have_their_lines(self):
        rows = (('[limits "uid:1"]\nconnections = 3\n', 2, "connections: only limits that end with _per_uid, multiprocessors and host_threads can be set for a user, group or cgroup"),
                ('[limits "uid:1"]\nthreads = 3\n', 2, "threads: only limits that end with _per_uid, multiprocessors and host_threads"),
                ('[limits "uid:1"]\nregions_per_usr = 3\n', 2, "regions_per_usr: unknown setting; did you mean regions-per-uid?"),
                ('[limits "uid:1"]\nmultiprocessors = 0\n', 2, "multiprocessors: 0, but for a user, group or cgroup it must be at least 1"),
                ('[limits "uid:1"]\nregions_per_uid = 0\n', 2, "regions-per-uid = 0: it takes a whole number from 1"),
                ('[limits "uid:1"]\nregions_per_uid = 1\n[limits "uid:1"]\nregions_per_uid = 2\n', 4, "regions_per_uid: it was already set on line 2"),
                ('[limits "user:nobody-of-that-name"]\nregions_per_uid = 1\n', 1, '[limits "user:nobody-of-that-name"]: there is no user nobody-of-that-name'),
                ('[limits "group:none-of-that-name"]\n', 1, '[limits "group:none-of-that-name"]: there is no group none-of-that-name'),
                ('[limits "uid:root"]\n', 1, '[limits "uid:root"]: root is not a number from 0 to 4294967294'),
                ('[limits "uid:4294967295"]\n', 1, '[limits "uid:4294967295"]: 4294967295 is not a number from 0 to 4294967294'),
                ('[limits "root"]\n', 1, '[limits "root"]: the user, group or cgroup is written as uid:NUMBER, user:NAME, gid:NUMBER, group:NAME or cgroup:PATH'),
                ('[limits "cgroup:/a"]\nregions_per_uid = 1\n[limits "cgroup:/a"]\nregions_per_uid = 2\n', 4, "regions_per_uid: it was already set on line 2"),
                ('[limits "cgroup:/a"]\nconnections = 1\n', 2, "connections: only limits that end with _per_uid, multiprocessors and host_threads can be set for a user, group or cgroup"),
                ('[limits "cgroup:a/../b"]\n', 1, '[limits "cgroup:a/../b"]: a cgroup\'s path begins with /, ends without one, has no part that is empty, . or .., and has at most 180 bytes'),
                ('[limits ""]\n', 1, '[limits ""]: unknown section'), ("[limits uid:1]\n", 1, "[limits uid:1]: unknown section"),
                ('[limits "uid:1"]\nconnections_per_uid = 5000\n', 2, "connections-per-uid = 5000: it may not exceed connections, which is 4096 by default"),
                ('[limits "gid:1"]\njobs_per_uid = 10\nbehind_waits_per_uid = 11\n', 3, "behind-waits-per-uid = 11: it may not exceed jobs-per-uid, which is 10"))
        for text, line, words in rows:
            self.write(text)
            done = self.check()
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), text + done.stderr)
            self.assertTrue(done.stderr.startswith(f"tmad: {self.file}:{line}: {words}"), done.stderr)
        self.write("".join(f'[limits "uid:{n}"]\nregions_per_uid = 1\n' for n in range(65)))
        self.assertIn(":129: [limits \"uid:64\"]: at most 64 users, groups and cgroups can", self.check().stderr)


class Access(ConfigCase):
    """Who may connect to a socket that tmad makes."""

    def bits(self, *args):
        tmad = self.start(*args)
        status = os.stat(tmad.path)
        return oct(status.st_mode & 0o7777), status.st_gid

    def setUp(self):
        super().setUp()
        self.write("")

    def test_as_told(self):
        self.assertEqual(self.bits(), ("0o660", os.getegid()))
        self.assertEqual(self.bits("--socket-mode=0600"), ("0o600", os.getegid()))
        self.assertEqual(self.bits("--socket-mode=666"), ("0o666", os.getegid()))
        others = [gid for gid in os.getgroups() if gid != os.getegid()] or ([54321] if os.geteuid() == 0 else [])
        for gid in others[:1]:
            self.assertEqual(self.bits(f"--socket-group={gid}", "--socket-mode=0620"), ("0o620", gid))
        self.assertEqual(self.bits("--socket-group=" + grp.getgrgid(os.getegid()).gr_name), ("0o660", os.getegid()))

    def test_in_a_file(self):
        self.write(f"[tmad]\nsocket-group = {os.getegid()}\nsocket-mode = 0606\n")
        self.assertEqual(self.bits(), ("0o606", os.getegid()))

    def test_refused(self):
        for mode in ("", "660x", "8", "0660 ", "1777", "0060", "0400", "rw-rw----", "-1", "777777777777777777777"):
            done = self.check(f"--socket-mode={mode}")
            self.assertEqual((done.returncode, done.stderr), (2, f"tmad: --socket-mode={mode}: it takes an octal mode from 0600 to "
                             "0777 with which the owner may read and write (tmad --help lists the options)\n"))
        for group, words in (("none-of-that-name", "there is no group none-of-that-name"), ("", "there is no group "),
                             ("4294967295", "4294967295 is not a number from 0 to 4294967294")):
            done = self.check(f"--socket-group={group}")
            self.assertEqual((done.returncode, done.stderr),
                             (2, f"tmad: --socket-group={group}: {words} (tmad --help lists the options)\n"))

    @unittest.skipIf(os.geteuid() == 0, "root may give it to any group")
    def test_a_group_of_others(self):
        done = run_tmad("--config=", "--engine=cpu", f"--socket={self.directory}/s", "--socket-group=4242424")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--socket-group=4242424: only root may give ", done.stderr)
        self.assertFalse(os.path.exists(f"{self.directory}/s"))

    @unittest.skipUnless(os.geteuid() == 0, "only root may become somebody else")
    def test_a_group_of_others_without_root(self):
        os.chmod(self.directory, 0o777)
        done = run_tmad("--config=", "--engine=cpu", f"--socket={self.directory}/s", "--socket-group=4242424", user=65534,
                        group=65534, extra_groups=[], cwd="/")
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"tmad: --socket-group=4242424: only root may give {self.directory}/s to a group that tmad is not a "
                             "member of\n"))
        self.assertFalse(os.path.exists(f"{self.directory}/s"))

    def test_a_socket_of_a_service_manager_s(self):
        for option, key in (("--socket-mode=0666", "SocketMode"), ("--socket-group=0", "SocketGroup")):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.join(self.directory, key))
                sock.listen()
                os.set_inheritable(sock.fileno(), True)
                done = subprocess.run(["bash", "-c", f'exec 3<&{sock.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', TMAD,
                                       "--config=", "--engine=cpu", option], close_fds=False, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False,
                                      timeout=scaled(20))
                self.assertEqual((done.returncode, done.stderr),
                                 (1, f"tmad: {option}: the service manager made the socket; set {key}= in its socket unit instead\n"))


@unittest.skipIf(SHIPPED is None, "not built")
class Shipped(ConfigCase):
    """The configuration file that is installed."""

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
        for name in ("mapped_bytes_per_uid", "created_bytes_per_uid", "queued_bytes_per_uid", "list_bytes_per_uid",
                     "region_fds_per_uid"):
            del limits[name], defaults[name]  # of the machine
        self.assertEqual(limits, defaults)


class Manager:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(scaled(20))

    def next(self, key):
        """Returns the next message that has the key, as a dictionary of its lines."""
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
        """Reloads. Returns the STATUS at the end."""
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


class SubordinateUids(ReloadCase):
    """To whom a uid is charged, by a file like /etc/subuid."""

    def setUp(self):
        super().setUp()
        self.write("")
        self.alice, *self.subordinate, self.bob = (own_uid(i) for i in range(4))

    def ranges(self, text):
        return self.write(text, "subuid")

    def start(self, *args, **kwargs):
        tmad = super().start("--socket-mode=0666", f"--subuid-file={self.directory}/subuid", *args, **kwargs)
        os.chmod(tmad.directory, 0o711)
        return tmad

    def connect(self, tmad, uid):
        os.seteuid(uid)
        try:
            rpc = tmad.rpc()
        finally:
            os.seteuid(0)
        self.addCleanup(rpc.close)
        return rpc

    def is_refused(self, tmad, uid):
        try:
            return not self.connect(tmad, uid).call("ping")
        except RpcError as e:
            self.assertEqual(e.name, "QUOTA")
        except ConnectionError:
            pass
        return True

    @unittest.skipUnless(os.geteuid() == 0, "connects as other users")
    def test_they_are_one_user_with_their_owner(self):
        self.ranges(f"{self.alice}:{self.subordinate[0]}:2\n")
        tmad = self.start("--connections-per-uid=2")
        self.assertIs(self.connect(tmad, self.subordinate[0]).call("ping"), True)
        self.assertIs(self.connect(tmad, self.alice).call("ping"), True)
        for uid in (self.alice, *self.subordinate):
            self.assertTrue(self.is_refused(tmad, uid), uid)
        self.assertIn(f"uid {self.subordinate[1]} pid {os.getpid()}: refused a connection: QUOTA: connections_per_uid: this "
                      f"uid's limit on connections is 2; 2 in use, 1 more requested (charged to uid {self.alice})\n", tmad.log())
        self.assertIn(f"uid {self.alice} pid {os.getpid()}: refused a connection: QUOTA: connections_per_uid: this "
                      "uid's limit on connections is 2; 2 in use, 1 more requested\n", tmad.log())
        self.assertFalse(self.is_refused(tmad, self.bob))
        with tmad.rpc() as rpc:
            self.assertEqual([session["uid"] for session in rpc.call("session_list")[:2]], [self.subordinate[0], self.alice])
            users = {user["uid"] for user in rpc.call("stats")["users"]}
            self.assertEqual(users & {self.alice, *self.subordinate, self.bob}, {self.alice, self.bob})

    @unittest.skipUnless(os.geteuid() == 0, "connects as other users")
    def test_a_reload(self):
        """A reload applies to new connections; existing ones stay charged as they were."""
        self.ranges("")
        tmad = self.start("--connections-per-uid=1")
        first = self.connect(tmad, self.subordinate[0])
        self.assertIs(first.call("ping"), True)
        self.ranges(f"{self.alice}:{self.subordinate[0]}:2\n")
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad))
        self.assertIn("reload: ranges of subordinate uids: 0 -> 1\n", tmad.log())
        self.assertIs(first.call("ping"), True)
        second = self.connect(tmad, self.subordinate[1])
        self.assertIs(second.call("ping"), True)
        self.assertTrue(self.is_refused(tmad, self.subordinate[0]))
        self.assertTrue(self.is_refused(tmad, self.alice))
        self.assertIn(": 0 changed, 0 wait", self.reload(tmad))

    @unittest.skipUnless(os.geteuid() == 0, "connects as other users")
    def test_limits_of_their_own(self):
        """Those of the owner's section are for all together; a uid that has a section is a user of its own."""
        self.ranges(f"{self.alice}:{self.subordinate[0]}:2\n")
        self.write(f'[limits "uid:{self.alice}"]\nregions_per_uid = 3\n'
                   f'[limits "uid:{self.subordinate[1]}"]\nregions_per_uid = 5\n')
        tmad = self.start()
        for uid, most in ((self.alice, 3), (self.subordinate[0], 3), (self.subordinate[1], 5)):
            self.assertEqual(self.connect(tmad, uid).call("info")["limits"]["regions_per_uid"], most, uid)

    @unittest.skipUnless(os.geteuid() == 0, "connects as other users")
    def test_those_of_root_are_not_trusted_as_root_is(self):
        self.ranges(f"root:{self.subordinate[0]}:2\n")
        tmad = self.start()
        pool = os.memfd_create("none")
        self.addCleanup(os.close, pool)
        for uid, name in ((self.subordinate[0], "QUOTA"), (0, by_engine(cpu="UNSUPPORTED", cuda="INVALID_ARGUMENT"))):
            with self.subTest(uid=uid), self.assertRaises(RpcError) as caught:
                self.connect(tmad, uid).call("region_register", {"kind": "cuda_pool", "size": 10, "allocation": 10,
                                                                 "handle": bytes(64)}, [pool])
            self.assertEqual(caught.exception.name, name)
        sessions = self.connect(tmad, self.subordinate[0]).call("session_list")
        self.assertEqual({session["uid"] for session in sessions}, {self.subordinate[0]})

    @unittest.skipUnless(os.geteuid() == 0, "connects as other users")
    def test_those_of_root_are_one_user(self):
        """Without being root, whose own connections count apart."""
        self.ranges(f"root:{self.subordinate[0]}:2\n")
        tmad = self.start("--connections-per-uid=1")
        first = self.connect(tmad, self.subordinate[0])
        self.assertIs(first.call("ping"), True)
        self.assertTrue(self.is_refused(tmad, self.subordinate[1]))
        self.assertIn(f"(charged to uid {self.subordinate[0]})", tmad.log())

    def test_a_file_that_is_none_is_a_warning(self):
        tmad = self.start()
        path = f"{self.directory}/subuid"
        self.assertIn(f"tmad: {path}: No such file or directory; each uid is a user of its own\n", tmad.log())
        self.ranges("7:100\n8:100:10\n")
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad))
        self.assertIn(f"tmad: reload: {path}:1: it is not OWNER:FIRST:COUNT; the line is ignored\n", tmad.log())
        done = self.check(f"--subuid-file={path}")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, f"tmad: {path}:1: it is not OWNER:FIRST:COUNT; the line is ignored\n")
        os.unlink(path)
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad))

    def test_none(self):
        """An empty path is no file, and nothing to warn of."""
        with Tmad("--subuid-file=") as tmad:
            self.assertNotIn("subuid", tmad.log())


class Cgroups(ReloadCase):
    """To whom the processes of a cgroup are charged."""

    def setUp(self):
        super().setUp()
        skip_unless_peers_have_cgroups()
        self.alice, self.bob, self.carol, _ = (own_uid(i) for i in range(4))
        self.group = self.make(f"tmad-test-{os.getpid()}-{time.monotonic_ns()}")
        self.below = self.make("below", self.group)
        if len(self.below.path) > 170:
            self.skipTest("this test's cgroup has too long a path")

    def make(self, name, parent=None):
        group = Cgroup(name, parent)
        self.addCleanup(group.close)
        return group

    def section(self, group, *lines):
        return "\n".join((f'[limits "cgroup:{group.path}"]', *lines, ""))

    def start(self, text, *args, **kwargs):
        self.write(text)
        tmad = super().start("--socket-mode=0666", *args, **kwargs)
        os.chmod(tmad.directory, 0o711)
        return tmad

    def peer(self, tmad, group, uid, *args, **kwargs):
        peer = Peer(tmad.path, group, uid, *args, **kwargs)
        self.addCleanup(peer.close)
        return peer

    def regions(self, tmad, group, uid):
        """The limit that a process is told."""
        peer = self.peer(tmad, group, uid, "info")
        peer.close()
        return peer.answer["limits"]["regions_per_uid"]

    def test_its_processes_are_one_user(self):
        tmad = self.start(self.section(self.group, "connections_per_uid = 1"), f"--metrics=unix:{self.directory}/m")
        first = self.peer(tmad, self.group, self.alice)
        self.assertIs(first.answer, True)
        for group, uid in ((self.group, self.alice), (self.group, self.bob), (self.below, self.carol), (self.below, 0)):
            refused = self.peer(tmad, group, uid)
            self.assertEqual(refused.answer, ["QUOTA", "connections_per_uid: this cgroup's limit on connections is 1; 1 in use, "
                                              "1 more requested"], uid)
            self.assertIn(f"tmad: uid {uid} cgroup {self.group.path} pid {refused.pid}: refused a connection: QUOTA: ", tmad.log())
        outside = self.make(os.path.basename(self.group.path) + "-outside")
        for uid in (self.alice, self.bob):
            self.assertIs(self.peer(tmad, outside, uid).answer, True, uid)
        with tmad.rpc() as rpc:
            sessions = {session["pid"]: (session["uid"], session.get("cgroup")) for session in rpc.call("session_list")}
            users = [(user["uid"], user.get("cgroup")) for user in rpc.call("stats")["users"]]
            self.assertEqual((sessions[first.pid], sessions[os.getpid()]), ((self.alice, self.group.path), (0, None)))
            self.assertIn((2 ** 32 - 1, self.group.path), users)
            self.assertIn((self.alice, None), users)
            self.assertNotIn((self.carol, None), users)
        metrics = scrape(f"unix:{self.directory}/m")
        self.assertEqual(metrics["tmad_uid_limit", "name=connections_per_uid", f"uid=cgroup:{self.group.path}"], 1)
        self.assertEqual(metrics["tmad_uid_requests_total", f"uid=cgroup:{self.group.path}"], 1)
        rows = json.loads(tmactl("top", "--json", "--once", socket_path=tmad.path).stdout)["sessions"]
        self.assertEqual({row["cgroup"] for row in rows if row["pid"] == first.pid}, {self.group.path})
        self.assertIn(os.path.basename(self.group.path)[:20], tmactl("top", "--once", socket_path=tmad.path).stdout)
        self.assertIn(f"  {self.group.path} ", tmactl("stats", socket_path=tmad.path).stdout)
        first.close()
        wait_until(lambda: self.peer(tmad, self.below, self.bob).answer is True, "the connection is free")

    def test_the_longest_path_counts(self):
        deepest = self.make("deepest", self.below)
        other = self.make(os.path.basename(self.group.path) + "x")
        tmad = self.start("[limits]\nregions_per_uid = 2\n" + self.section(self.below, "regions_per_uid = 4") +
                          self.section(self.group, "regions_per_uid = 3") +
                          f'[limits "uid:{self.alice}"]\nregions_per_uid = 5\n[limits "gid:{self.alice}"]\nregions_per_uid = 6\n')
        for group, most in ((self.group, 3), (self.below, 4), (deepest, 4), (other, 5)):
            self.assertEqual(self.regions(tmad, group, self.alice), most, group.path)
        self.assertEqual(self.regions(tmad, other, self.bob), 2)

    def test_nobody_in_it_is_trusted_and_each_sees_its_own(self):
        """Not root, either, because its account is everybody's; but it sees what root may see."""
        tmad = self.start(self.section(self.group))
        pool = os.memfd_create("none")
        self.addCleanup(os.close, pool)
        alice, bob = (self.peer(tmad, self.group, uid, "session_list") for uid in (self.alice, self.bob))
        root = self.peer(tmad, self.group, 0, "session_list")
        for peer, seen in ((alice, {self.alice}), (bob, {self.bob}), (root, {0, self.alice, self.bob})):
            self.assertEqual({session["uid"] for session in peer.answer}, seen)
        handle = {"kind": "cuda_pool", "size": 10, "allocation": 10, "handle": bytes(64)}
        for uid in (self.alice, 0):
            self.assertEqual(self.peer(tmad, self.group, uid, "region_register", handle, [pool]).answer[0], "QUOTA", uid)

    def test_a_reload(self):
        """It applies to new connections; those that are there stay charged as they were."""
        tmad = self.start("[limits]\nconnections_per_uid = 1\n")
        first = self.peer(tmad, self.group, self.alice)
        self.assertIs(first.answer, True)
        text = "[limits]\nconnections_per_uid = 1\n" + self.section(self.group, "connections_per_uid = 2")
        self.assertIn(": 2 changed, 0 wait", self.reload(tmad, text))
        self.assertIn(f"reload: cgroup {self.group.path}: new connections are charged to the cgroup\n", tmad.log())
        self.assertIn(f"reload: cgroup {self.group.path}: connections-per-uid: as everyone -> 2\n", tmad.log())
        peers = [self.peer(tmad, self.below, uid) for uid in (self.alice, self.alice)]
        self.assertEqual([peer.answer for peer in peers], [True, True])
        self.assertEqual(self.peer(tmad, self.group, self.bob).answer[0], "QUOTA")
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad, text.replace("= 2", "= 3")))
        self.assertIs(self.peer(tmad, self.group, self.bob).answer, True)
        self.assertIn(": 2 changed, 0 wait", self.reload(tmad, "[limits]\nconnections_per_uid = 1\n"))
        self.assertIn(f"reload: cgroup {self.group.path}: new connections are charged as if it had no section\n", tmad.log())
        self.assertIs(self.peer(tmad, self.group, self.carol).answer, True)
        self.assertEqual(self.peer(tmad, self.group, self.alice).answer[0], "QUOTA", "the first one is still there")

    def test_a_process_that_has_ended_is_in_no_cgroup(self):
        """Or one could leave the cgroup by having another one connect."""
        tmad = self.start(self.section(self.group))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(scaled(20))
            tmad.process.send_signal(signal.SIGSTOP)
            try:
                child = os.fork()
                if not child:
                    try:
                        self.group.enter()
                        sock.connect(tmad.path)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
            finally:
                tmad.process.send_signal(signal.SIGCONT)
            sock.sendall(pack_request(1, "ping"))
            error = RpcError(msgpack.unpackb(sock.recv(65536))[2])
        self.assertEqual((error.name, error.message),
                         ("PERMISSION", "the cgroup of the process that connected is not known: No such process"))

    def test_a_long_path_is_no_way_out(self):
        """The kernel writes less than 4096 bytes of it, or says that there are more."""
        tmad = self.start(self.section(self.group, "connections_per_uid = 1"))
        deep = self.below
        for _ in range(17):
            deep = self.make("d" * 250, deep)
        self.assertIs(self.peer(tmad, self.group, self.alice).answer, True)
        self.assertIn(self.peer(tmad, deep, self.bob).answer[0], ("QUOTA", "PERMISSION"))

    def test_where_proc_hides_it(self):
        """Uids count, and the log says so once. Without a section nobody asks."""
        libc = ctypes.CDLL(None, use_errno=True)
        service = own_uid(3)

        def hide():
            if (libc.unshare(0x20000) != 0 or libc.mount(b"none", b"/", None, 0x44000, None) != 0
                    or libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2") != 0):
                os._exit(77)
            os.setgroups([])
            os.setresgid(service, service, service)
            os.setresuid(service, service, service)

        self.write("")
        os.chmod(self.directory, 0o755)
        os.chmod(self.file, 0o644)
        tmad = Tmad(f"--config={self.file}", "--socket-mode=0666", engine="cpu", start=False,
                    env={"NOTIFY_SOCKET": self.manager.path})
        os.chmod(self.manager.path, 0o666)
        os.chown(tmad.directory, service, service)
        try:
            tmad.start(preexec_fn=hide)
        except PermissionError:
            self.skipTest("other users may not run the program")
        except AssertionError as why:
            if "ended with 77" in str(why):
                self.skipTest("no /proc can be mounted here")
            raise
        self.addCleanup(tmad.stop)
        self.manager.next("READY")
        os.chmod(tmad.directory, 0o711)
        self.assertIs(self.peer(tmad, self.group, self.alice).answer, True)
        self.assertNotIn("cgroups", tmad.log())
        self.reload(tmad, self.section(self.group, "regions_per_uid = 1"))
        for uid in (self.alice, self.bob):
            self.assertEqual(self.regions(tmad, self.group, uid), 4096)
        self.assertEqual(tmad.log().count("tmad: limits of cgroups do not apply to all connections: /proc hides processes of "
                                          "other users (ProtectProc= of the unit)\n"), 1, tmad.log())


class Reload(ReloadCase):
    def test_says_what_has_changed(self):
        self.write("[limits]\nconnections = 10\n")
        tmad = self.start()
        status = self.reload(tmad, "[tmad]\nthreads = 3\n[limits]\nconnections = 20\ntensor-map-entries = 5\n")
        self.assertRegex(status, r"^Serving on .*; settings reloaded at \d\d:\d\d:\d\d UTC: 1 changed, 2 wait for a restart")
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

    def test_the_format_of_the_log(self):
        self.write("[tmad]\nlog-level = notice\n")
        tmad = self.start()
        self.reload(tmad, "[tmad]\nlog-level = notice\nlog-format = time\n")
        self.assertRegex(tmad.log(), "(?m)^tmad: reload: log-format: auto -> time$", "it says so in the format before")
        self.reload(tmad, "[tmad]\nlog-level = notice\nlog-format = plain\n")
        self.assertRegex(tmad.log(), r"(?m)^[-0-9]+ [:.0-9]+ notice  tmad: reload: log-format: time -> plain$")
        self.assertIn("log-format = xml: it takes one of auto, plain, time", run_tmad("--check-config", "--config=" + self.write(
            "[tmad]\nlog-format = xml\n")).stderr)

    def test_trials_of_plans(self):
        self.write("[tmad]\ntune = off\n")
        tmad = self.start()
        self.assertIn(": 1 changed, 0 wait", self.reload(tmad, "[tmad]\ntune = on\n"))
        self.assertIn(": 0 changed, 0 wait", self.reload(tmad, ""))
        self.assertIn("tmad: reload: tune: off -> on\n", tmad.log())
        self.assertIn("tune = maybe: it takes one of off, on", run_tmad("--check-config", "--config=" + self.write(
            "[tmad]\ntune = maybe\n")).stderr)

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

    def test_limits_of_a_user(self):
        self.write(f'[limits "uid:{os.getuid()}"]\nregions_per_uid = 2\n')
        tmad = self.start()
        with tmad.rpc() as rpc:
            def limit():
                return rpc.call("info")["limits"]["regions_per_uid"]

            self.assertEqual(limit(), 2)
            status = self.reload(tmad, f'[limits "uid:{os.getuid()}"]\nregions_per_uid = 3\nplans_per_uid = 5\n')
            self.assertIn(": 2 changed, 0 wait for a restart", status)
            self.assertEqual(limit(), 3)
            self.assertIn(f"reload: uid {os.getuid()}: regions-per-uid: 2 -> 3\n", tmad.log())
            self.assertIn(f"reload: uid {os.getuid()}: plans-per-uid: as everyone -> 5\n", tmad.log())
            if not os.environ.get("EMULATOR"):
                self.reload(tmad, f'[limits "gid:{os.getgid()}"]\nregions_per_uid = 4\n')
                self.assertEqual(limit(), 4)
            self.reload(tmad, "[limits]\nregions_per_uid = 9\n")
            self.assertEqual(limit(), 9)
            self.assertIn(f"reload: uid {os.getuid()}: plans-per-uid: 5 -> as everyone\n", tmad.log())
            self.assertIn("connections_per_uid = 8K: ", self.reload(tmad, '[limits "uid:1"]\nconnections_per_uid = 8K\n')
                          .replace("-", "_"))
            self.assertEqual(limit(), 9)

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
                self.assertIn(f"this uid's limit on regions is 2; {held} in use, ", caught.exception.message)
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
            self.assertIn(f"the settings had errors and the previous ones stay in force: {self.file}:3: plans-per-uid = none", status)
            self.assertIs(rpc.call("ping"), True)
        self.assertEqual(self.limits(tmad)["connections"], 10)
        log = tmad.log()
        self.assertIn(f"tmad: reload: {self.file}:3: plans-per-uid = none: it takes a whole number", log)
        self.assertIn(f"tmad: reload: {self.file}:4: x: unknown setting", log)
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
        self.assertEqual(log.count("tmad: continuing with the settings from before the restart\n"), 2, log)
        self.assertIn(": 1 changed", self.reload(tmad, "[limits]\nconnections = 40\nplans-per-uid = 7\n"))

    def test_limits_of_a_user_outlive_a_broken_file(self):
        self.write(f'[limits "uid:{os.getuid()}"]\nregions_per_uid = 5\n[limits "gid:{os.getgid()}"]\nplans_per_uid = 6\n')
        tmad = self.start()
        self.write("[limits\n")
        for _ in range(2):
            self.lose(tmad)
            limits = self.limits(tmad)
            self.assertEqual((limits["regions_per_uid"], limits["plans_per_uid"]), (5, 6))

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
