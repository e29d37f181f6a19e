# SPDX-License-Identifier: Apache-2.0
"""tmad under a service manager: sockets that are passed, its notifications, when it feeds the watchdog, and how it
stops and is restarted. The manager is tests/support/manager.py."""
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from manager import Manager, Stopped, listening
from tmad import FAULTY, SOFTGPU, Memory, Rpc, pack_request, scaled, tensor, wait_until

WATCHDOG_USEC = 600000  # the watchdog is fed every 0.2 s
SILENCE_S = 1.5         # seconds; several watchdog intervals


class ManagerCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="tmad-systemd-")
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.path = os.path.join(self.directory, "s")

    def manager(self, *args, **options):
        manager = Manager(*args, **options)
        self.addCleanup(manager.close)
        return manager

    def started(self, *args, sockets=None, **options):
        """Starts a tmad that serves self.path, on one passed socket unless others are given."""
        manager = self.manager(*args, sockets=[("clients", listening(self.path))] if sockets is None else sockets,
                               **options)
        manager.start()
        manager.ready = manager.wait_told("READY")
        return manager

    def rpc(self):
        rpc = Rpc(self.path)
        self.addCleanup(rpc.close)
        return rpc


class Activation(ManagerCase):
    def test_who_came_before_it_started_is_served(self):
        manager = self.manager(sockets=[("clients", listening(self.path))])
        early = self.rpc()
        msgid = early.request("ping")
        manager.start()
        self.assertIs(early.reply(msgid), True)
        self.assertIn("READY", manager.wait_told("READY"))
        self.assertEqual(manager.stop(), 0, manager.log())
        self.assertTrue(os.path.exists(self.path), "the socket is the service manager's")

    def test_ready_means_that_it_serves(self):
        manager = self.started("--socket", self.path, sockets=[])
        self.assertIs(self.rpc().call("ping"), True)
        self.assertEqual(manager.stop(), 0)
        self.assertFalse(os.path.exists(self.path))

    def test_sockets_by_name(self):
        rows = [[None], ["clients"], ["tmad.socket"], ["unknown"], ["clients", "metrics"], ["metrics", "tmad@0.socket"]]
        for names in rows:
            with self.subTest(names=names):
                path = os.path.join(self.directory, "-".join(str(name) for name in names))
                pairs = []
                for name in names:
                    if name == "metrics":
                        metrics = socket.create_server(("127.0.0.1", 0))
                        pairs.append((name, metrics))
                    else:
                        pairs.append((name, listening(path)))
                manager = self.started(sockets=pairs)
                with Rpc(path) as rpc:
                    self.assertIs(rpc.call("ping"), True)
                if "metrics" in names:
                    with socket.create_connection(metrics.getsockname(), timeout=scaled(10)) as http:
                        http.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                        self.assertIn(b" 200 ", http.recv(64))
                self.assertIn(f"Serving on {path}", manager.ready["STATUS"])
                self.assertEqual(manager.stop(), 0, manager.log())

    def test_sockets_that_are_refused(self):
        def datagram():
            return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

        def connected():
            return socket.socketpair()[0]

        def tcp():
            return socket.create_server(("127.0.0.1", 0))

        def unix():
            return listening(os.path.join(self.directory, str(len(os.listdir(self.directory)))))

        rows = [
            ([("clients", datagram)], "descriptor 3 (clients) is not a listening stream socket"),
            ([("clients", connected)], "descriptor 3 (clients) is not a listening stream socket"),
            ([("clients", unix), ("metrics", datagram)], "descriptor 4 (metrics) is not a listening stream socket"),
            ([("clients", tcp)], "descriptor 3 is not a listening Unix stream socket"),
            ([("clients", unix), ("more", unix)], "descriptor 4 (more): tmad takes one socket for clients"),
            ([("metrics", tcp), ("metrics", tcp)], "descriptor 4 (metrics): tmad takes one socket for clients"),
        ]
        for pairs, message in rows:
            with self.subTest(message=message):
                manager = self.manager(sockets=[(name, make()) for name, make in pairs])
                manager.start()
                self.assertEqual(manager.wait(), 1)
                self.assertIn(message, manager.log())

    def test_variables_that_make_no_sense(self):
        rows = [({"LISTEN_FDS": "many"}, "LISTEN_FDS: Invalid argument"),
                ({"LISTEN_FDS": "-1"}, "LISTEN_FDS: Invalid argument"),
                ({"LISTEN_FDS": "9"}, "LISTEN_FDS: Bad file descriptor"),
                ({"LISTEN_FDNAMES": "one:two"}, "LISTEN_FDS: Invalid argument")]
        for i, (variables, message) in enumerate(rows):
            with self.subTest(variables=variables):
                manager = self.manager(sockets=[("clients", listening(self.path + str(i)))], **variables)
                manager.start()
                self.assertEqual(manager.wait(), 1)
                self.assertIn(message, manager.log())

    def test_another_process_s_variables(self):
        manager = self.manager("--socket", self.path, sockets=[("clients", listening(self.path + "2"))], LISTEN_PID="1")
        manager.start()
        manager.wait_told("READY")
        self.assertIs(self.rpc().call("ping"), True)
        self.assertEqual(manager.stop(), 0)

    def test_clients_wait_for_it_to_come_back(self):
        manager = self.started()
        before = self.rpc()
        before.call("ping")
        manager.kill()
        self.assertTrue(before.ended())
        waiting = [(rpc, rpc.request("ping")) for rpc in (self.rpc() for _ in range(10))]
        manager.start()
        for rpc, msgid in waiting:
            self.assertIs(rpc.reply(msgid), True)
        self.assertEqual(manager.stop(), 0)


class Told(ManagerCase):
    def test_status_says_what_is_served(self):
        manager = self.started(watchdog_usec=WATCHDOG_USEC)
        self.assertIn(f"Serving on {self.path}, engine cpu (", manager.ready["STATUS"])
        self.assertIn("0 clients, 0 regions of 0.0 KiB", manager.ready["STATUS"])
        rpc = self.rpc()
        with Memory(3 << 20) as memory:
            memory.register(rpc)
            manager.wait_told("STATUS", "1 client, 1 region of 3.0 MiB")
        rpc.close()
        manager.wait_told("STATUS", "0 clients, 0 regions of 0.0 KiB")
        manager.forget()
        for _ in range(3):
            self.assertNotIn("STATUS", manager.wait_told("WATCHDOG"), "it has not changed")

    def test_a_reload(self):
        manager = self.started()
        manager.process.send_signal(signal.SIGHUP)
        self.assertTrue(int(manager.wait_told("RELOADING", "1")["MONOTONIC_USEC"]) > 0)
        self.assertIn("settings reloaded", manager.wait_told("READY")["STATUS"])

    def test_a_device_that_is_lost(self):
        manager = self.started(program=FAULTY, engine="cuda")
        rpc = self.rpc()
        made = rpc.call("region_create", {"size": 1 << 20})
        params = {"dst": tensor(made["region"], [6666]), "src": tensor(made["region"], [6666], offset=10000)}
        rpc.request("copy", params)
        manager.wait_told("STATUS", "Starting again: engine cuda was lost: a copy of 6666 bytes is fatal to it")
        manager.wait_told("READY")
        self.assertEqual(manager.stop(), 0)

    def test_a_drain(self):
        """The transform waits for a word that nobody writes."""
        manager = self.started("--drain-deadline-ms=700", watchdog_usec=WATCHDOG_USEC)
        rpc = self.rpc()
        region = rpc.call("region_create", {"size": 4096})["region"]
        rpc.request("copy", {"dst": tensor(region, [8]), "src": tensor(region, [8], offset=64),
                             "wait": {"region": region, "offset": 128, "value": 1}})
        self.assertIs(rpc.call("ping"), True)
        manager.process.send_signal(signal.SIGTERM)
        self.assertEqual(manager.wait_told("STOPPING", "1")["STATUS"], "Stopping: 1 connection, 1 transform to finish")
        self.assertTrue(manager.is_fed(scaled(10)), "it is fed until the end")
        self.assertEqual(manager.wait(), 0, manager.log())


class Watchdog(ManagerCase):
    @staticmethod
    def stop(manager, tid, sentence):
        """Stops the thread where it holds no lock: a thread with a lock would hold up the loop as well, which then
        could not report it."""
        for _ in range(5):
            stopped = Stopped(tid).__enter__()
            deadline = time.monotonic() + scaled(5)
            while sentence and sentence not in manager.log() and time.monotonic() < deadline:
                time.sleep(0.01)
            if not sentence or sentence in manager.log():
                break
            stopped.__exit__(None, None, None)
            time.sleep(0.1)
        else:
            stopped = Stopped(tid).__enter__()
        return stopped

    def silent(self, manager, thread, sentence):
        """A stopped thread is reported, and the watchdog is not fed until it goes on."""
        tid = manager.thread(thread)
        self.assertTrue(manager.is_fed(scaled(10)))
        try:
            stopped = self.stop(manager, tid, sentence)
        except PermissionError as error:
            self.skipTest(str(error))
        try:
            if sentence:
                wait_until(lambda: sentence in manager.log(), sentence)
                manager.wait_told("STATUS", "no sign of life")
            manager.forget()
            self.assertFalse(manager.is_fed(SILENCE_S), "it is fed, and a thread stands still")
        finally:
            stopped.__exit__(None, None, None)
        self.assertTrue(manager.is_fed(scaled(10)), "the thread goes on, and it is not fed")
        self.assertEqual(manager.stop(), 0, manager.log())

    def test_fed_while_idle(self):
        manager = self.started(watchdog_usec=WATCHDOG_USEC)
        for _ in range(5):
            self.assertTrue(manager.is_fed(scaled(10)))
        self.assertEqual(manager.stop(), 0)

    def test_not_fed_for_another_process(self):
        manager = self.started(watchdog_usec=WATCHDOG_USEC, WATCHDOG_PID="1")
        self.assertFalse(manager.is_fed(SILENCE_S))

    def test_fed_while_busy(self):
        """Every thread of the engine always has more work, and each transform takes longer than a tick."""
        manager = self.started("--threads=2", watchdog_usec=WATCHDOG_USEC)
        enough = threading.Event()

        def work():
            with Rpc(self.path, timeout=60) as rpc, Memory(192 << 20) as memory:
                region = memory.register(rpc)
                one, other = tensor(region, [96 << 20]), tensor(region, [96 << 20], offset=96 << 20)
                msgids = [rpc.request("copy", {"dst": one, "src": other}) for _ in range(8)]
                while msgids:
                    rpc.reply(msgids.pop(0))
                    if not enough.is_set():
                        msgids.append(rpc.request("copy", {"dst": one, "src": other}))

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        manager.forget()
        fed = [manager.is_fed(scaled(20)) for _ in range(6)]
        enough.set()
        while any(worker.is_alive() for worker in workers):
            manager.told(0.05)  # keeps the socket empty, because tmad waits if its messages are not read
        self.assertEqual(fed, [True] * 6)
        self.assertNotIn("sign of life", manager.log())

    def test_a_thread_that_moves_bytes_is_stuck(self):
        self.silent(self.started("--threads=2", watchdog_usec=WATCHDOG_USEC), "engine-cpu",
                    "1 of the 2 threads that move bytes: no sign of life")

    def test_the_thread_that_watches_timelines_is_stuck(self):
        self.silent(self.started(watchdog_usec=WATCHDOG_USEC), "engine-wait",
                    "the thread that watches timelines: no sign of life")

    def test_the_thread_that_drives_a_device_is_stuck(self):
        if not os.path.exists(os.path.join(SOFTGPU, "libcuda.so.1")):
            self.skipTest("this build has no CUDA engine")
        manager = self.started(engine="cuda", watchdog_usec=WATCHDOG_USEC, LD_LIBRARY_PATH=SOFTGPU)
        # The message names the thread, or the device if the thread was stopped between a question to it and the answer.
        self.silent(manager, "engine-cuda", "the device: no sign of life")

    def test_the_loop_is_stuck(self):
        self.silent(self.started(watchdog_usec=WATCHDOG_USEC), "", None)

    def test_an_engine_that_says_so(self):
        silent = os.path.join(self.directory, "silent")
        manager = self.started(program=FAULTY, engine="cuda", watchdog_usec=WATCHDOG_USEC, FAULTY_SILENT=silent)
        self.assertTrue(manager.is_fed(scaled(10)))
        with open(silent, "w", encoding="ascii"):
            wait_until(lambda: "the watchdog is not notified" in manager.log(), "a warning")
        manager.forget()
        self.assertFalse(manager.is_fed(SILENCE_S))
        os.unlink(silent)
        self.assertTrue(manager.is_fed(scaled(10)))
        self.assertEqual(manager.log().count("the watchdog is not notified"), 1, "it is said once")
        self.assertIn("signs of life again", manager.log())

    def test_what_a_manager_does_about_it(self):
        """The manager ends the process and starts another: requests made meanwhile are answered."""
        manager = self.started(watchdog_usec=WATCHDOG_USEC)
        self.assertTrue(manager.is_fed(scaled(10)))
        try:
            with Stopped(manager.thread("")):
                early = self.rpc()
                early.send(pack_request(1, "ping"))
                manager.forget()
                self.assertFalse(manager.is_fed(WATCHDOG_USEC / 1e6))
                manager.process.send_signal(signal.SIGKILL)
        except PermissionError as error:
            self.skipTest(str(error))
        manager.wait()
        manager.start()
        manager.wait_told("READY")
        self.assertIs(early.reply(1), True)
        self.assertEqual(manager.stop(), 0)


if __name__ == "__main__":
    tap.main()
