# SPDX-License-Identifier: Apache-2.0
"""Descriptors of every kind and number, sent with whole messages and parts of messages, are never leaked."""
import contextlib
import os
import random
import resource
import select
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import Memory, RpcError, Tmad, own_uid, pack_request, scaled, share, wait_until

LIMIT = 4  # message_fds
COUNTS = [0] * 8 + [1] * 8 + [LIMIT] * 4 + [LIMIT + 1] * 2 + [253]
PING = pack_request(7, "ping")
REGISTER = pack_request(7, "region_register", {"kind": "memfd", "size": 4096})


class Kinds:
    """One descriptor of each kind that a client may have."""

    def __init__(self, path, cleanup):
        left, right = socket.socketpair()
        read_end, write_end = os.pipe()
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.connect(path)
        epoll = select.epoll()
        memory = Memory(4096)
        unsealed = os.memfd_create("unsealed")
        self.fds = [left.fileno(), right.fileno(), read_end, write_end, own.fileno(), epoll.fileno(), memory.fd, unsealed,
                    os.open("/", os.O_RDONLY), os.open("/", os.O_PATH), os.open("/dev/null", os.O_RDWR),
                    os.open(path, os.O_PATH), os.pidfd_open(os.getpid())]
        for each in (left, right, own, epoll, memory):
            cleanup(each.close)
        for fd in [read_end, write_end, unsealed, *self.fds[8:]]:
            cleanup(os.close, fd)

    def some(self, n):
        return random.choices(self.fds, k=n)


class Descriptors(unittest.TestCase):
    def test_every_kind_and_number(self):
        n, seed = share(10**5), random.randrange(1 << 32)
        random.seed(seed)
        answered = ended = sent = 0
        tmad = Tmad(f"--message-fds={LIMIT}")
        with tmad:
            kinds = Kinds(tmad.path, self.addCleanup)
            rpc = tmad.rpc()
            self.exchange(rpc, kinds, 0, PING)
            fds = tmad.fds()
            start = time.monotonic()
            for _ in range(n):
                count, message = random.choice(COUNTS), random.choice((PING, PING, REGISTER))
                sent += count
                if self.exchange(rpc, kinds, count, message):
                    answered += 1
                else:
                    ended += 1
                    self.assertGreater(count, LIMIT, f"it ended for nothing (seed {seed})")
                    rpc.close()
                    if ended % 16 == 0:  # of a uid with 8192 still to close no connection is served
                        wait_until(lambda: tmad.fds() < 4000, "what was to close is closed")
                    rpc = tmad.rpc()
            seconds = time.monotonic() - start
            rpc.close()
            with tmad.rpc() as other:
                wait_until(lambda: other.call("stats")["regions"] == 0, "regions are gone")
                wait_until(lambda: tmad.fds() <= fds, "no descriptor more")
            print(f"# {n} messages with {sent} descriptors in {seconds:.1f} s, {answered} answered, {ended} sessions "
                  "ended, no descriptor left over", flush=True)
        self.assertGreater(answered, ended)

    def exchange(self, rpc, kinds, count, message):
        """Returns False if the session ended. Half of the messages come in parts, and their descriptors with any
        part."""
        cut = random.randrange(1, len(message)) if random.random() < 0.5 else len(message)
        first = random.randint(0, count) if count <= LIMIT else count
        try:
            rpc.send(message[:cut], kinds.some(first))
            if cut < len(message):
                rpc.send(message[cut:], kinds.some(count - first))
            reply = rpc.receive()
        except OSError:
            return False
        if reply is None:
            return False
        self.assertEqual(reply[1], 7)
        if reply[2] is None and isinstance(reply[3], dict):
            rpc.call("region_release", {"region": reply[3]["region"]})
            rpc.msgid = 0
        return True

    def test_what_is_glued_stays_with_the_client(self):
        """The kernel hands out descriptors with all bytes before them: they may go to an earlier request of the same
        connection that should have brought its own, to no other's."""
        with Tmad() as tmad, tmad.rpc() as rpc, tmad.rpc() as other, Memory(4096) as memory:
            other.call("ping")
            memory.register(other)
            other.call("region_release", {"region": other.call("region_list")[0]["region"]})
            fds = tmad.fds()
            os.kill(tmad.pid, signal.SIGSTOP)
            rpc.request("region_register", {"kind": "memfd", "size": 4096})
            rpc.request("region_register", {"kind": "memfd", "size": 4096}, [memory.fd])
            other.request("region_register", {"kind": "memfd", "size": 4096})
            os.kill(tmad.pid, signal.SIGCONT)
            replies = sorted((rpc.receive() for _ in range(2)), key=lambda reply: reply[1])
            self.assertEqual([reply[1] for reply in replies], [1, 2])
            self.assertEqual(sum(reply[2] is None for reply in replies), 1, "one descriptor, one region")
            self.assertEqual(other.receive()[2][2]["name"], "INVALID_ARGUMENT")
            self.assertIs(rpc.call("ping"), True)
            self.assertEqual(other.call("region_list"), [])
            wait_until(lambda: tmad.fds() <= fds, "no descriptor more")

    # ---- On the way out -------------------------------------------------------------------------------
    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be a user for whom descriptors on their way are limited")
    def test_those_on_their_way_are_limited(self):
        """As many descriptors are unread as the kernel allows; a client that has to wait for that is answered when
        others have read."""
        limit = 200
        tmad = Tmad(start=False)
        uid = own_uid()
        os.chown(tmad.directory, uid, uid)

        def become_user():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        with contextlib.ExitStack() as stack:
            tmad.start(preexec_fn=become_user)
            stack.enter_context(tmad)
            greedy = [stack.enter_context(tmad.rpc()) for _ in range(8)]
            patient = stack.enter_context(tmad.rpc())
            made = 0
            for rpc in greedy:
                rpc.send(b"".join(pack_request(i, "region_create", {"size": 1}) for i in range(30)))
                made += 30
                wait_until(lambda: patient.call("stats")["regions"] == made, "they are made")
                wait_until(lambda: tmad.fds() < limit // 2, "those on their way are no longer the service's own")
            msgid = patient.request("region_create", {"size": 4096})
            patient.socket.settimeout(0.3)
            with self.assertRaises(TimeoutError, msg="the kernel limits nothing here"):
                patient.receive()
            patient.socket.settimeout(scaled(10))
            for rpc in greedy:
                for _ in range(30):
                    self.assertIsNone(rpc.receive()[2])
            self.assertEqual(patient.reply(msgid)["size"], 4096)
            self.assertEqual(len(patient.fds), 1)
            self.assertNotIn("ended", tmad.log())

    def test_one_that_reads_none_has_few(self):
        """Descriptors that a connection does not receive stay in the service, where they are counted."""
        n = 200
        with Tmad() as tmad, tmad.rpc() as rpc, tmad.rpc() as other:
            rpc.send(b"".join(pack_request(i, "region_create", {"size": 1}) for i in range(n)))
            wait_until(lambda: other.call("stats")["regions"] > 64, "they are made")
            time.sleep(0.2)
            self.assertLess(other.call("stats")["regions"], n, "it waits")
            for _ in range(n):
                self.assertIsNone(rpc.receive()[2])
            self.assertEqual(len(rpc.fds), n)

    def fill(self, tmad, rpc, n):
        """Sends descriptors of n released regions that are not received."""
        with tmad.rpc() as asks:
            for i in range(n):
                rpc.send(pack_request(i, "region_create", {"size": 1}))
                wait_until(lambda: asks.call("stats")["regions"] == 1, "it is made")
                rpc.send(pack_request(i, "region_release", {"region": i << 20 | 1}))
                wait_until(lambda: asks.call("stats")["regions"] == 0, "it is released")
            self.assertEqual(asks.call("stats")["outgoing_fds"], n)

    def refused(self, rpc):
        with self.assertRaises(RpcError) as caught:
            rpc.call("region_create", {"size": 1})
        self.assertEqual(caught.exception.name, "QUOTA")
        self.assertIn("outgoing_fds_per_uid: this uid's limit on descriptors made and not yet received is 4;", caught.exception.message)

    @staticmethod
    def makes(rpc):
        with contextlib.suppress(RpcError):
            return rpc.call("region_create", {"size": 1})

    def test_they_are_charged_until_they_are_received(self):
        with Tmad("--outgoing-fds-per-uid=4") as tmad, tmad.rpc() as rpc, tmad.rpc() as other:
            self.fill(tmad, rpc, 4)
            self.refused(other)
            for _ in range(8):
                self.assertIsNone(rpc.receive()[2])
            self.assertEqual(len(rpc.fds), 4)
            wait_until(lambda: self.makes(other), "the charges come back")
            wait_until(lambda: rpc.call("stats")["outgoing_fds"] == 0, "all of them")

    def test_they_are_charged_when_the_connection_has_ended(self):
        """The service keeps the socket of an ended connection, and its charge, while something in it is not
        received."""
        with Tmad("--outgoing-fds-per-uid=4") as tmad, tmad.rpc() as other:
            rpc = tmad.rpc()
            self.fill(tmad, rpc, 4)
            rpc.socket.shutdown(socket.SHUT_WR)
            wait_until(lambda: len(other.call("session_list")) == 1, "it has ended")
            self.refused(other)
            wait_until(lambda: other.call("stats")["connections"] == 2, "its socket is kept, and no other's")
            if random.random() < 0.5:
                while rpc.receive() is not None:
                    pass
            else:
                rpc.close()
            wait_until(lambda: self.makes(other), "the charges come back")
            wait_until(lambda: other.call("stats")["connections"] == 1, "and the connection's")
            rpc.close()

    def test_a_stop_does_not_wait_for_them(self):
        with Tmad("--drain-deadline-ms=20000") as tmad, tmad.rpc() as rpc:
            self.fill(tmad, rpc, 4)
            rpc.socket.shutdown(socket.SHUT_WR)
            start = time.monotonic()
            tmad.stop()
            self.assertLess(time.monotonic() - start, scaled(10))

    def test_they_have_a_deadline(self):
        with Tmad("--reply-deadline-ms=300") as tmad, tmad.rpc() as rpc:
            self.fill(tmad, rpc, 1)
            wait_until(lambda: "region's descriptor in time (reply_deadline_ms)" in tmad.log(), "it ends")

    def test_who_is_never_done_reading_receives_all_the_same(self):
        """A client that asks for much always has something unread, but what was sent before has been received."""
        with Tmad("--reply-deadline-ms=300") as tmad, tmad.rpc() as rpc:
            rpc.call("region_create", {"size": 1})
            rpc.send(pack_request(0, "info") * 20)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                rpc.send(pack_request(0, "info"))
                self.assertEqual(rpc.receive()[1], 0)
            for _ in range(20):
                self.assertEqual(rpc.receive()[1], 0)
            self.assertIs(rpc.call("ping"), True)


if __name__ == "__main__":
    tap.main()
