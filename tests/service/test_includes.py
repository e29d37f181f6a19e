# SPDX-License-Identifier: Apache-2.0
"""Includes point one way (tests/support/includes.py): those of the tree do, and one that does not is found."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import includes
import tap

SOURCE = os.environ.get("TEST_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# file, what it shall not include, the arrow that is named
FORBIDDEN = (
    ("proto/tensor.c", "kernels/thread.h", "proto -> kernels"),
    ("proto/wire/frame.h", "daemon/server.h", "proto -> daemon"),
    ("proto/tensor.h", "client/tmaclient.h", "proto -> client"),
    ("kernels/transform/transform.c", "kernels/engine.h", "kernels/transform -> kernels"),
    ("kernels/nest/loop_nest.h", "../cuda/device/args.h", "kernels/nest -> kernels/cuda/device"),
    ("kernels/queue/fair_queue.c", "kernels/host/memory.h", "kernels/queue -> kernels/host"),
    ("kernels/host/memory.c", "kernels/cpu/run/tuning.h", "kernels/host -> kernels/cpu/run"),
    ("kernels/cpu/move/move.c", "kernels/cuda/driver/driver.h", "kernels/cpu/move -> kernels/cuda/driver"),
    ("kernels/cpu/tile/tile.c", "kernels/cpu/run/stream.h", "kernels/cpu/tile -> kernels/cpu/run"),
    ("kernels/cuda/sched/queue.c", "kernels/cpu/run/stream.h", "kernels/cuda/sched -> kernels/cpu/run"),
    ("kernels/cuda/memory/memory.c", "kernels/cuda/stage/round.h", "kernels/cuda/memory -> kernels/cuda/stage"),
    ("kernels/cuda/launch/launch.c", "kernels/cuda/device/tma.cuh", "kernels/cuda/launch -> kernels/cuda/device"),
    ("kernels/cuda/device/fill.cu", "kernels/cuda/driver/driver.h", "kernels/cuda/device -> kernels/cuda/driver"),
    ("kernels/cuda/device/args.h", "proto/status.h", "kernels/cuda/device -> proto"),
    ("kernels/engine.h", "daemon/server.h", "kernels -> daemon"),
    ("kernels/cpu/engine.c", "client/tmaclient.h", "kernels/cpu -> client"),
    ("daemon/loop/log.c", "daemon/config/options.h", "daemon/loop -> daemon/config"),
    ("daemon/config/options.c", "daemon/memory/devices.h", "daemon/config -> daemon/memory"),
    ("daemon/memory/devices.c", "kernels/cpu/engine.c", "daemon/memory -> kernels/cpu"),
    ("daemon/memory/devices.c", "kernels/cuda/memory/memory.h", "daemon/memory -> kernels/cuda"),
    ("daemon/memory/region.c", "daemon/jobs/job.h", "daemon/memory -> daemon/jobs"),
    ("daemon/memory/session.h", "daemon/net/connection.h", "daemon/memory -> daemon/net"),
    ("daemon/jobs/submission.c", "kernels/host/fault.h", "daemon/jobs -> kernels/host"),
    ("daemon/jobs/job.c", "daemon/api/transforms.h", "daemon/jobs -> daemon/api"),
    ("daemon/api/method_service.c", "daemon/net/connection.h", "daemon/api -> daemon/net"),
    ("daemon/api/steps.c", "kernels/queue/fair_queue.h", "daemon/api -> kernels/queue"),
    ("daemon/net/connection.c", "daemon/api/transforms.h", "daemon/net -> daemon/api"),
    ("daemon/net/listener.c", "daemon/server.h", "daemon/net -> daemon"),
    ("daemon/observe/exposition.c", "daemon/net/connection.h", "daemon/observe -> daemon/net"),
    ("daemon/main.c", "client/tmaclient.h", "daemon -> client"),
    ("client/io.c", "kernels/engine.h", "client -> kernels"),
    ("client/io.c", "daemon/tmad.h", "client -> daemon"),
    ("client/io.c", "tmactl/tmactl.h", "client -> client/tmactl"),
    ("client/client.c", "client/python/src/core.h", "client -> client/python"),
    ("client/python/src/run.c", "client/tmactl/tmactl.h", "client/python -> client/tmactl"),
    ("client/python/src/run.c", "proto/tensor.h", "client/python -> proto"),
    ("client/tmactl/cmd_ping.c", "client/client.h", "client/tmactl -> client"),
    ("client/tmactl/npy/npy.c", "client/tmactl/copy/mover.h", "client/tmactl/npy -> client/tmactl/copy"),
    ("client/tmactl/npy/npy.c", "proto/wire/rpc.h", "client/tmactl/npy -> proto"),
    ("client/tmactl/npy/npy.c", "kernels/cuda/strategy/plan.h", "client/tmactl/npy -> kernels/cuda/strategy"),
    ("proto/tensor.c", "tests/support/tap.h", "proto -> ."),
    ("proto/tensor.c", "nowhere.h", "no file"),
)


class IncludesCase(unittest.TestCase):
    def test_the_tree_points_one_way(self):
        self.assertEqual(includes.check(SOURCE), [])

    def test_every_room_is_there(self):
        rooms = {includes.room_of(path) for path in includes.sources(SOURCE)}
        self.assertEqual(rooms, set(includes.ROOMS))

    def test_a_planted_include_is_named_with_its_arrow(self):
        with tempfile.TemporaryDirectory() as copy:
            for path in (*includes.sources(SOURCE), "tests/support/tap.h"):
                os.makedirs(os.path.dirname(os.path.join(copy, path)), exist_ok=True)
                shutil.copyfile(os.path.join(SOURCE, path), os.path.join(copy, path))
            self.assertEqual(includes.check(copy), [])
            for path, name, arrow in FORBIDDEN:
                with self.subTest(f'{path} includes "{name}"'):
                    self._plant(copy, path, name, arrow)

    def test_a_planted_circle_is_named_with_its_units(self):
        """Within a room, where each include by itself is allowed."""
        room = "daemon/jobs"
        with tempfile.TemporaryDirectory() as copy:
            for path in includes.sources(SOURCE):
                os.makedirs(os.path.dirname(os.path.join(copy, path)), exist_ok=True)
                shutil.copyfile(os.path.join(SOURCE, path), os.path.join(copy, path))
            for most, expected in ((includes.MOST_UNITS, 0), (includes.MOST_UNITS + 1, 1)):
                names = [f"planted_{i}" for i in range(most)]
                for name, following in zip(names, names[1:] + names[:1]):
                    with open(os.path.join(copy, room, name + ".h"), "w", encoding="utf-8") as file:
                        file.write(f'#include "{following}.h"\n')
                found = includes.check(copy)
                self.assertEqual(len(found), expected, found)
            self.assertEqual(found[0].split(": ")[1].split(), sorted(f"{room}/{name}" for name in names))

    def _plant(self, copy, path, name, arrow):
        planted = os.path.join(copy, path)
        with open(planted, encoding="utf-8") as file:
            text = file.read()
        with open(planted, "w", encoding="utf-8") as file:
            file.write(text + f'#  include "{name}"\n')
        found = includes.wrong_arrows(copy)
        with open(planted, "w", encoding="utf-8") as file:
            file.write(text)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:{len(text.splitlines()) + 1}: {arrow}"), found[0])


if __name__ == "__main__":
    tap.main()
