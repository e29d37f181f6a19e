# SPDX-License-Identifier: Apache-2.0
"""The manual is whole and true: what the programs take, say and export is in the page it belongs to, and nothing else is."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import sentences
import tap
from tmad import BUILD, SOURCE, TMACTL, TMAD, Tmad, tmactl

CC = os.environ.get("TEST_CC") or "cc"
OTHERS = {("journalctl", "1"), ("systemd.socket", "5")}  # pages that are not ours
GENERATOR = os.path.join(SOURCE, "proto", "manual")


def find(name):
    """A page is in the build, or came with the sources."""
    built = os.path.join(BUILD, name)
    return built if os.path.exists(built) else os.path.join(SOURCE, name)


def page_names():
    with open(os.path.join(GENERATOR, "Makemodule.am"), encoding="utf-8") as file:
        return re.findall(r"^\t(\S+\.[1-8])(?: \\)?$", file.read(), re.M)


PAGES = page_names()


def text(name):
    with open(find(name), encoding="utf-8") as file:
        return file.read()


def section(name, title):
    """The lines of a section or subsection, up to the next of its kind."""
    match = re.search(rf"^\.(S[hs]) {re.escape(title)}$\n(.*?)(?=^\.(?:\1|Sh) |\Z)", text(name), re.M | re.S)
    assert match, f"{name} has no {title}"
    return match.group(2)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)


def options_of(words):
    """The long options that stand at the start of a line of help."""
    return set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", words, re.M))


def aliases():
    return dict(line.split() for line in text("client/tmaclient.aliases").splitlines())


class Form(unittest.TestCase):
    def test_there_are_pages(self):
        self.assertGreater(len(PAGES), 10)
        pages = {os.path.basename(name) for name in PAGES}
        self.assertLessEqual({"tmad.8", "tmactl.1", "tmad.conf.5", "tmaclient.3", "tmad-errors.7"}, pages)
        self.assertEqual({page + ".3" for page in aliases().values()} | {"tmaclient.3"},
                         {page for page in pages if page.endswith(".3")}, "a page for each group, each in the makefile")

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc(self):
        for name in PAGES:
            with self.subTest(page=name):
                done = run("mandoc", "-Tlint", "-W", "warning", find(name))
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_man(self):
        for name in PAGES:
            with self.subTest(page=name):
                done = run("man", "--warnings", "-E", "UTF-8", "-l", find(name), env=dict(os.environ, MANWIDTH="80"))
                if "unminimize" in done.stdout:
                    self.skipTest("this system's man shows no pages")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("NAME", done.stdout)

    def test_cross_references(self):
        ours = {tuple(os.path.basename(name).rsplit(".", 1)) for name in PAGES}
        for name in PAGES:
            for reference in re.findall(r"^\.(?:It )?Xr (\S+) (\d)", text(name), re.M):
                self.assertIn(reference, ours | OTHERS, name)

    def test_same_bytes(self):
        """No day, place, language or order of the machine's is in a page."""
        with tempfile.TemporaryDirectory() as directory:
            version = re.search(r'\.Os "tmad (\S+)"', text("daemon/tmad.8")).group(1)
            done = run(sys.executable, GENERATOR, SOURCE, version, *PAGES, "client/tmaclient.aliases", cwd=directory,
                       env={"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for name in [*PAGES, "client/tmaclient.aliases"]:
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    self.assertEqual(file.read(), text(name), name)


class Strict(unittest.TestCase):
    """What would be missing from the manual stops it."""

    def refuses(self, name, old, new, words):
        with tempfile.TemporaryDirectory() as directory:
            for folder in ("client", "client/examples", "client/tmactl", "daemon", "daemon/config", "proto"):
                os.mkdir(os.path.join(directory, folder))
                for file in os.listdir(os.path.join(SOURCE, folder)):
                    if re.search(r"\.(def|in|h|c|groups)$", file):
                        shutil.copyfile(os.path.join(SOURCE, folder, file), os.path.join(directory, folder, file))
            path = os.path.join(directory, name)
            with open(path, encoding="utf-8") as file:
                before = file.read()
            self.assertIn(old, before)
            with open(path, "w", encoding="utf-8") as file:
                file.write(before.replace(old, new, 1))
            done = run(sys.executable, GENERATOR, directory, "1", *PAGES, cwd=directory,
                       env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_example_that_is_gone(self):
        self.refuses("client/tmaclient.groups", '"gather")', '"gathers")', "client/examples/gathers.c")

    def test_function_without_comment(self):
        self.refuses("client/tmaclient.h", "/* Returns 0 if the service answers. */\n", "", "tma_ping has no comment")

    def test_group_without_page(self):
        self.refuses("client/tmaclient.h", "/* ---- Plans ---", "/* ---- Recipes ---", "'Recipes' has no page")

    def test_declaration_that_is_none(self):
        self.refuses("client/tmaclient.h", "TMA_API int tma_ping(", "int tma_ping(", "is no comment, type or function")

    def test_row_with_a_column_too_few(self):
        self.refuses("proto/status.def", 'STATUS(BUSY, -9, "in use",', "STATUS(BUSY, -9,", "has 3 columns, not 4")

    def test_section_of_errors_that_is_none(self):
        self.refuses("proto/errors.def", "SAYS(OVERLAP,", "SAYS(OVERLAPS,", "OVERLAPS is no section")

    def test_words_on_an_option_that_is_gone(self):
        self.refuses("daemon/tmad.8.in", "@more threads@", "@more fibres@", "no fibres")


class Facts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        cls.info = json.loads(tmactl("info", "--json", socket_path=cls.tmad.path).stdout)

    def test_options_of_tmad(self):
        done = run(TMAD, "--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(set(re.findall(r"^\.It Fl -(\S+)", text("daemon/tmad.8"), re.M)), options_of(done.stdout))

    def test_options_of_tmactl(self):
        common = set(re.findall(r"^\.It (?:Fl \w , )?Fl -(\S+)", section("client/tmactl/tmactl.1", "OPTIONS"), re.M))
        commands = re.findall(r"^\.Ss (\S+)$", section("client/tmactl/tmactl.1", "COMMANDS"), re.M)
        top = run(TMACTL, "help").stdout
        self.assertEqual(common, options_of(top))
        self.assertEqual(set(commands), set(re.findall(r"^  ([a-z]+) ", top, re.M)))
        for command in commands:
            shown = run(TMACTL, "help", command)
            self.assertEqual(shown.returncode, 0, command)
            page = set(re.findall(r"^\.It (?:Fl \w , )?Fl -(\S+)", section("client/tmactl/tmactl.1", command), re.M))
            self.assertEqual(page, options_of(shown.stdout) - common, command)

    OF_THE_MACHINE = {"mapped_bytes_per_uid", "created_bytes_per_uid", "queued_bytes_per_uid",
                      "input_bytes_per_uid", "list_bytes_per_uid", "region_fds_per_uid"}

    def test_limits(self):
        fixed = {"message_bytes", "message_depth", "message_elements", "rank"}
        limits = {name for name in self.info["limits"]} - fixed
        self.assertEqual(set(re.findall(r"^\.It Ic (\S+) Ns", section("daemon/config/tmad.conf.5", "SECTION [limits]"), re.M)), limits)
        for name, value in self.info["limits"].items():
            if name in limits - self.OF_THE_MACHINE:
                self.assertRegex(section("daemon/config/tmad.conf.5", "SECTION [limits]"),
                                 rf"(?s)\.It Ic {name} Ns[^\n]*\n(?:(?!\.It).)*Default: {value};")
        for name in self.OF_THE_MACHINE - {"mapped_bytes_per_uid", "created_bytes_per_uid"}:  # less in a small machine or cgroup
            entry = re.search(rf"(?s)\.It Ic {name} Ns[^\n]*\n(?:(?!\.It).)*?Default: (\d+);",
                              section("daemon/config/tmad.conf.5", "SECTION [limits]"))
            self.assertLessEqual(self.info["limits"][name], int(entry[1]), name)

    def test_methods(self):
        page = re.findall(r"^\.It Ic (\S+)$", section("daemon/tmad.8", "METHODS"), re.M)
        self.assertEqual(sorted(page), sorted(self.info["methods"]))

    @unittest.skipIf(os.environ.get("EMULATOR"), "this machine's nm may not read the library")
    def test_functions(self):
        library = next((path for path in (os.path.join(BUILD, folder, "libtmaclient.so") for folder in (".libs", "."))
                        if os.path.exists(path)), None)
        self.assertIsNotNone(library)
        symbols = run("nm", "-D", "--defined-only", library)
        self.assertEqual(symbols.returncode, 0, symbols.stderr)
        exported = set(re.findall(r" T (tma_\w+)", symbols.stdout))
        self.assertEqual(set(aliases()), exported)
        for function, page in aliases().items():
            words = text(f"client/{page}.3")
            self.assertRegex(words, rf"(?m)^\.Nm {function}(?: ,)?$")
            self.assertRegex(words, rf"(?m)^\.Fo {function}$")
            self.assertRegex(words, rf"(?m)^\.It Fn {function}$")
            self.assertIn(f".Fn {function} ", text("client/tmaclient.3"))
        with open(os.path.join(SOURCE, "client", "tmaclient.h"), encoding="utf-8") as file:
            types = set(re.findall(r"^(?:typedef )?(?:struct|enum|uint64_t) (tma_\w+)", file.read(), re.M))
        for name in PAGES:  # what running text names is there
            for function in re.findall(r"\\fB(tma_\w+)\\fP|\.Fn (tma_\w+)", text(name)):
                self.assertIn(function[0] or function[1], exported | types, name)

    def test_statuses(self):
        with open(os.path.join(SOURCE, "client", "tmaclient.h"), encoding="utf-8") as file:
            header = dict(re.findall(r"TMA_([A-Z_]+) = (-\d+),", file.read()))
        page = re.findall(r"^\.Ss ([A-Z_]+) \((-\d+)\)$", text("daemon/tmad-errors.7"), re.M)
        self.assertEqual(dict(page), header)

    def test_examples_compile(self):
        found = 0
        for name in PAGES:
            for body in re.findall(r'^\.\\" example\n\.Bd -literal\n(.*?)^\.Ed', text(name), re.M | re.S):
                found += 1
                code = body.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
                done = subprocess.run([*CC.split(), "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                                       "-I" + os.path.join(SOURCE, "client"), "-x", "c", "-"],
                                      input=code, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)
        self.assertGreaterEqual(found, 6)

    def test_example_of_a_file(self):
        body = re.search(r'^\.\\" config\n\.Bd -literal -offset indent\n(.*?)^\.Ed', text("daemon/config/tmad.conf.5"), re.M | re.S).group(1)
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(body.replace("\\-", "-"))
            file.flush()
            done = run(TMAD, "--check-config", "--config=" + file.name)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)


class Guide(unittest.TestCase):
    """The operators' guide names nothing that is not there."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        cls.info = json.loads(tmactl("info", "--json", socket_path=cls.tmad.path).stdout)
        with open(os.path.join(SOURCE, "systemd", "GUIDE.md"), encoding="utf-8") as file:
            cls.guide = file.read()

    def source(self, name):
        with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
            return file.read()

    def test_names(self):
        stage = self.source("client/python/tmaclient/nixl/_stage.py").partition("class Stage")[2]
        stage = stage.partition("def __init__(")[2].partition(") -> None:")[0]
        known = set(self.info["limits"]) | set(self.info["methods"]) | set(re.findall(r"^ +(\w+): ", stage, re.M))
        known |= {"cuda_fd", "cuda_ipc", "cuda_pool", "tma_set_server_uid", "enable_prog_thread",
                  "tma_enqueue"}
        names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", self.guide))
        self.assertGreater(len(names), 10)
        self.assertEqual(names - known, set())

    def test_units(self):
        units = set(re.findall(r"systemd/(tmad\S*\.(?:service|socket))", self.source("systemd/Makemodule.am")))
        named = {re.sub(r"@[^.]+", "@", unit) for unit in re.findall(r"\btmad[\w@-]*\.(?:service|socket)\b", self.guide)}
        self.assertGreater(len(named), 4)
        self.assertEqual(named - units, set())

    def test_fields_of_the_log(self):
        self.assertEqual(set(re.findall(r"TMAD_[A-Z_]+", self.guide)) - {"TMAD_SOCKET"},
                         set(re.findall(r'"(TMAD_[A-Z_]+)=', self.source("daemon/loop/log.c"))))

    def test_statuses(self):
        named = set(re.findall(r"^\| `([A-Z_]+)`", self.guide, re.M))
        self.assertGreater(len(named), 8)
        self.assertEqual(named - set(re.findall(r"^(?:LIBRARY_)?STATUS\(([A-Z_]+),", self.source("proto/status.def"), re.M)), set())

    def test_commands(self):
        commands = set(re.findall(r"^\.Ss (\S+)$", section("client/tmactl/tmactl.1", "COMMANDS"), re.M))
        self.assertEqual(set(re.findall(r"`tmactl ([a-z]+)", self.guide)) - commands, set())
        for program, page in (("tmad", "daemon/tmad.8"), ("tmactl", "client/tmactl/tmactl.1")):
            options = set(re.findall(r"`" + program + r"(?: [a-z]+)? --([a-z-]+)", self.guide))
            self.assertEqual(options - set(re.findall(r"Fl -(\S+)", text(page))), set(), program)

    def test_settings(self):
        keys = set(re.findall(r"^\.It Ic (\S+) Ns", text("daemon/config/tmad.conf.5"), re.M))
        self.assertEqual(set(re.findall(r"`([a-z][a-z-]+) ?=", self.guide)) - keys, set())

    # What the guide says, and the constants that it describes.
    SIZES = (
        ("a time slice is 5 us while several users are active", r"#define SHORT_\w+_NS +5000\n"),
        ("500 us if no other user was active within the last second", r"#define LONG_\w+_NS +500000\n"),
        ("take turns of 5 ms", r"#define SLICE_NS +5000000\n"),
        ("charged a quarter more for its engine time", r"#define PREMIUM +4\b"),
        ("at most 32 of the 64 transforms in flight", r"\.jobs = 64,"),
        ("together at most 256 MiB read plus written", r"\.owner_bytes = 256 << 20,"),
        ("2 of the 4 that may be staged", r"\.staged_jobs = 4,"),
        ("work items of at most 1 MiB", r"#define CPU_PIECE_BYTES +\(1 << 20\)"),
        ("1/8 of the GPU's memory, at most 1 GiB", r"memory_bytes / 8, UINT64_C\(1\) << 30\)"),
        ("reads and writes more than 32 KiB", r"\.direct_bytes = 32 << 10,"),
        ("until 10 s after the last transform", r"\.scratch_idle_ns = UINT64_C\(10000000000\),"),
        ("256 KiB each, at most 64 (16 MiB)", r"#define UPLOAD_BUFFER_BYTES +\(256u << 10\)"),
    )

    def test_sizes(self):
        guide = " ".join(self.guide.split())
        sources = "".join(self.source(os.path.join(folder, name)) for top in ("daemon", "kernels")
                          for folder, _, names in os.walk(os.path.join(SOURCE, top))
                          for name in names if name.endswith((".c", ".h")))
        for words, pattern in self.SIZES:
            with self.subTest(words=words):
                self.assertIn(words, guide)
                self.assertTrue(re.search(pattern, sources), f"{pattern} is not in the sources")


class Sentences(unittest.TestCase):
    """Every error is in the manual with its remedy."""

    @classmethod
    def setUpClass(cls):
        cls.said = sentences.in_sources(SOURCE)
        cls.listed = sentences.in_table(SOURCE)

    def test_what_is_said_is_listed(self):
        self.assertGreater(len(self.said), 200)
        for sentence in self.said:
            with self.subTest(at=sentence.at, says=sentence.text):
                self.assertTrue(any(entry.is_of(sentence) for entry in self.listed), "it is not in proto/errors.def")

    def test_what_is_listed_is_said(self):
        for entry in self.listed:
            with self.subTest(section=entry.section, says=entry.text):
                self.assertTrue(any(entry.is_of(sentence) for sentence in self.said), "nobody says it")

    def test_it_is_on_the_page(self):
        page = text("daemon/tmad-errors.7").replace("\\(dq", '"').replace("\\e", "\\")
        for entry in self.listed:
            self.assertIn(re.sub(r"\*\*", "*", entry.text), page)


if __name__ == "__main__":
    tap.main()
