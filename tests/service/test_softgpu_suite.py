# SPDX-License-Identifier: Apache-2.0
"""The service suite on the cuda engine, over the stand-in driver: the suites' own cases, as children.

Taken is what the engine can change: where bytes go and how they get there, whose memory a region is, how a
client's end, a drain and a stop deal with what is on the device, and that nothing of it stays behind. Left out
is what ends before an engine is asked (usage, files, descriptors, floods of a socket), and what only repeats
with more bytes, since the model of a GPU moves a few MB a second.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from tmad import BUILD, SANITIZED, SOFTGPU, scaled

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(BUILD, "service_library")

# The script or program, and words of the names of its cases that run; none: all of them.
SUITES = (
    ("test_transforms.py", ()),
    ("test_conversions.py", ()),
    ("test_conversions_hostile.py", ()),
    ("test_amax.py", ("test_random_scales", "test_deepgemm", "batch") if SANITIZED else ()),
    ("test_load_compute_store.py", ()),
    ("test_plans.py", ()),
    ("test_splits.py", ()),
    ("test_submit.py", ()),
    ("test_explain.py", ()),
    ("test_blocks.py", ()),
    ("test_regions.py", ()),
    ("test_files.py", ()),
    ("test_hugetlb.py", ("test_a_memfd_that_shrinks", "test_a_file_of_hugetlbfs")),
    ("test_messages.py", ()),
    ("test_pynvim.py", ()),
    ("test_numpy.py", ()),
    ("../tmactl/test_tmactl.py", ("Commands", "test_interrupted", "test_the_daemon_is_killed", "test_onto_itself")),
    ("test_daemon.py", ("test_one_line_when_ready", "Stopping", "test_killed", "test_closed_with", "test_half_closed",
                        "test_regions", "test_mapped_bytes", "test_jobs_wait", "Idle.test_takes_no_cpu_time")),
    (LIBRARY, ()),
)
# At random, of the scripts that take them so.
CASES = {"test_numpy.py": 10 if SANITIZED else 60, "test_blocks.py": 100 if SANITIZED else 2000,
         "test_splits.py": 40 if SANITIZED else 400, "test_conversions.py": 30 if SANITIZED else 400,
         "test_amax.py": 30 if SANITIZED else 400}
LIMIT_S = 120  # of one suite


class Tap:
    """Passes children's lines on, and keeps count for one plan of all."""

    def __init__(self):
        self.count = 0
        self.failed = False

    def say(self, verdict, name):
        self.count += 1
        self.failed = self.failed or verdict != "ok"
        print(f"{verdict} {self.count} - {name}", flush=True)

    def child(self, suite, command, env):
        planned, count, failed = None, self.count, False
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8",
                              errors="replace", env=env) as child:
            for line in child.stdout:
                if case := re.match(r"(ok|not ok)(?: \d+)? - (.*)", line):
                    self.say(case[1], f"{suite}: {case[2]}")
                    failed = failed or case[1] != "ok"
                elif plan := re.match(r"1\.\.(\d+)", line):
                    planned = int(plan[1])
                else:
                    print(line if line.startswith("#") else "# " + line, end="", flush=True)
        if not planned or self.count - count != planned:
            self.say("not ok", f"{suite}: {self.count - count} cases of {planned} ended")
        if child.returncode != 0 and not failed:
            self.say("not ok", f"{suite}: ended with {child.returncode}")

    def end(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.failed else 0


def main():
    if os.environ.get("TEST_CUDA") == "no":
        print("1..0 # SKIP this build has no cuda engine")
        return 0
    tap = Tap()
    env = {**os.environ, "TEST_ENGINE": "cuda", "CRITERION_ENABLE_TAP": "1"}
    if not os.path.exists(os.path.join(SOFTGPU, "libcuda.so.1")):
        tap.say("not ok", f"there is a stand-in driver in {SOFTGPU}")
        return tap.end()
    for program, words in SUITES:
        suite = re.sub(r"^test_|^service_|\.py$", "", os.path.basename(program))
        if not program.endswith(".py"):
            command = [program]
        else:
            command = [sys.executable, os.path.join(HERE, program), *words]
        if program == LIBRARY and not os.path.exists(program):
            tap.say("ok", f"{suite} # SKIP it is built with Criterion only")
        elif not sys.argv[1:] or suite in sys.argv[1:]:
            cases = {"TEST_CASES": str(CASES[program])} if program in CASES else {}
            tap.child(suite, ["timeout", "-k", "10", str(scaled(LIMIT_S)), *command], {**cases, **env})
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
