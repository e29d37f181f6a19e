# SPDX-License-Identifier: Apache-2.0
"""tmactl copy and explain of arrays in .npz archives, as numpy.load reads them."""
import io
import json
import os
import struct
import sys
import warnings
import zipfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import KEEP, TmactlCase
from tmad import Tmad, tmactl


class Archives(TmactlCase):
    def setUp(self):
        super().setUp()
        self.npz = self.file("a.npz")
        self.arrays = {"x": np.arange(60000, dtype="<f4").reshape(300, 200), "y": np.asfortranarray(np.eye(7, dtype="<i2")),
                       "a/b:c": np.array(3.5)}

    def copies(self, src, expected, *args):
        done = tmactl("copy", src, self.dst, *args, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        got = np.load(self.dst)
        self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
        self.assertTrue(np.array_equal(got, expected))

    def refuses(self, src, *words):
        self.file("out.npy", KEEP)
        done = tmactl("copy", src, self.dst, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        with open(self.dst, "rb") as file:
            self.assertEqual(file.read(), KEEP)

    def test_members(self):
        for save in (np.savez, np.savez_compressed):
            save(self.npz, **self.arrays)
            for name, array in self.arrays.items():
                for end in ("", ".npy"):
                    with self.subTest(save=save.__name__, name=name + end):
                        self.copies(f"{self.npz}:{name}{end}", array)
            self.copies(f"{self.npz}:x", self.arrays["x"].T[3:], "--permute", "1,0", "--pad=-3:0,0:0", "--memory", "1M")

    def test_large_ones_are_not_read_into_memory(self):
        """A service that maps 2 MiB moves 32, in order and not, stored and deflated."""
        array = (np.arange(8 << 20, dtype="u4") * np.uint32(2654435761) >> np.uint32(20)).reshape(4096, 2048)
        with Tmad(f"--mapped-bytes-per-uid={2 << 20}") as tmad:
            for save in (np.savez, np.savez_compressed):
                save(self.npz, x=array)
                for args, expected in (([], array), (["--permute", "1,0"], array.T)):
                    with self.subTest(save=save.__name__, args=args):
                        done = tmactl("copy", self.npz + ":x", self.dst, "--memory", "2M", *args, socket_path=tmad.path)
                        self.assertEqual((done.returncode, done.stderr), (0, ""))
                        self.assertTrue(np.array_equal(np.load(self.dst), expected))

    def test_64_bit_records(self):
        """As of archives past 4 GiB; here the sizes and the directory's place are only written that way."""
        np.savez(self.npz, **self.arrays)
        with open(self.npz, "rb") as file:
            data = file.read()
        with zipfile.ZipFile(self.npz) as archive:
            infos = archive.infolist()
            start = archive.start_dir
        directory = b""
        for info in infos:
            name = info.filename.encode()
            extra = struct.pack("<HHQQQ", 1, 24, info.file_size, info.compress_size, info.header_offset)
            directory += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, 0, 0, 0, info.CRC, 0xffffffff, 0xffffffff,
                                     len(name), len(extra), 0, 0, 0, 0, 0xffffffff) + name + extra
        end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, len(infos), len(infos), len(directory), start)
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + len(directory), 1)
        last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 3) + b"abc"
        self.file("a.npz", data[:start] + directory + end + locator + last)
        self.copies(self.npz + ":x", self.arrays["x"])

    def zipped(self, *members, name="z.npz", **kinds):
        """An archive of these members: of a name, an array or bytes, and how it is compressed."""
        path = self.file(name)
        with zipfile.ZipFile(path, "w", **kinds) as archive:
            for member, data, method in members:
                if not isinstance(data, bytes):
                    file = io.BytesIO()
                    np.save(file, data)
                    data = file.getvalue()
                archive.writestr(zipfile.ZipInfo(member), data, method)
        return path

    def test_of_two_members_of_one_name_the_last_is_taken(self):
        a, b, c = (np.full(5, i, "<i4") for i in range(3))
        rows = (("the last", [("x.npy", a), ("x.npy", b)], "x", b), ("the exact one", [("x", c), ("x.npy", a)], "x", c),
                ("the last exact one", [("x", a), ("x", c), ("x.npy", b)], "x", c),
                ("with its end", [("x.npy", a), ("x", b)], "x.npy", a))
        for name, members, asked, expected in rows:
            for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                with self.subTest(name=name, method=method), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # zipfile's, of the name
                    path = self.zipped(*((*member, method) for member in members))
                    self.assertTrue(np.array_equal(np.load(path)[asked], expected))
                    self.copies(f"{path}:{asked}", expected)

    def test_archives_as_others_write_them(self):
        """Written to a pipe, so that sizes follow the data; with something before the archive; with 64-bit sizes in the
        headers of members."""
        x = self.arrays["x"]
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with self.subTest(method=method):
                pipe = io.BytesIO()
                pipe.seekable = lambda: False
                with zipfile.ZipFile(pipe, "w") as archive, archive.open(zipfile.ZipInfo("x.npy"), "w") as member:
                    np.lib.format.write_array(member, x)
                self.copies(self.file("pipe.npz", pipe.getvalue()) + ":x", x)
                path = self.zipped(("first.npy", np.zeros(3), method))
                with open(path, "rb") as file:
                    before = file.read()
                with open(self.zipped(("x.npy", x, method)), "rb") as file:
                    self.copies(self.file("both.npz", before + file.read()) + ":x", x)

    def test_stored_members_are_checked(self):
        """Each byte of the member counts, those that a crop leaves out too; a pipe gets none of a damaged one."""
        np.savez(self.npz, **self.arrays)
        with open(self.npz, "rb") as file:
            good = file.read()
        with zipfile.ZipFile(self.npz) as archive:
            info = archive.getinfo("x.npy")
        start = info.header_offset + 30 + len("x.npy") + struct.unpack("<H", good[info.header_offset + 28:][:2])[0]
        for place in (start + 100, start + 128, start + info.file_size // 2, start + info.file_size - 1):
            with self.subTest(place=place):
                bad = self.file("bad.npz", good[:place] + bytes([good[place] ^ 1]) + good[place + 1:])
                self.refuses(bad + ":x", "bad.npz:x: ")
                self.copies(bad + ":y", self.arrays["y"])
                done = tmactl("copy", bad + ":x", self.dst, "--pad=-100:-100,-50:-50", socket_path=self.tmad.path)
                self.assertEqual(done.returncode, 1, done.stderr)
                done = tmactl("copy", bad + ":x", "-", socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_directories_that_lie(self):
        """Sizes of the directory against those that there are, stored and deflated; nothing wrong is ever copied."""
        for save in (np.savez, np.savez_compressed):
            save(self.npz, x=self.arrays["x"], y=self.arrays["y"])
            with open(self.npz, "rb") as file:
                good = file.read()
            with zipfile.ZipFile(self.npz) as archive:
                start, info = archive.start_dir, archive.getinfo("x.npy")
            stored = save is np.savez

            def change(at, form, *values, good=good, start=start):
                with_what = struct.pack(form, *values)
                return good[:start + at] + with_what + good[start + at + len(with_what):]
            rows = (("less", change(20, "<LL", info.compress_size - 4, info.file_size - (4 if stored else 0))),
                    ("more", change(20, "<LL", info.compress_size + 4, info.file_size + 4)),
                    ("a size of two", change(24, "<L", info.file_size - 4)), ("and more", change(24, "<L", info.file_size + 4)),
                    ("none", change(20, "<LL", 0, 0)), ("wide ones that are missing", change(24, "<L", 0xffffffff)),
                    ("a place that is missing", change(42, "<L", 0xffffffff)),
                    ("another name", change(46, "<5s", b"z.npy")), ("no entry", change(0, "<4s", b"PK\1\1")),
                    ("an entry without an end", change(28, "<H", 0xffff)))
            for name, data in rows:
                with self.subTest(save=save.__name__, name=name):
                    bad = self.file("bad.npz", data)
                    self.refuses(bad + (":z" if name == "another name" else ":x"), "bad.npz")

    def test_archives_are_not_written(self):
        np.save(self.file("in.npy"), self.arrays["x"])
        np.savez(self.file("data.zip"), x=np.zeros(3))
        os.rename(self.file("data.zip.npz"), self.file("data.zip"))
        os.mkdir(self.file("d.npz:e"))
        for there in (False, True):
            for name in ("y.npz", "y.NPZ", "y.npz:x", "y.npz:a/b", "y.npz:", "data.zip:x"):
                for option in ((), ("--dtype", "float8_e5m2", "--amax-block", "4", "--scale-output")):
                    with self.subTest(there=there, name=name, option=option):
                        paths = [self.file(name)] if not option else [self.dst, *option, self.file(name)]
                        before = sorted(os.listdir(self.directory))
                        done = tmactl("copy", self.file("in.npy"), *paths, socket_path=self.tmad.path)
                        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                        self.assertIn(f"{name}: an .npz archive or an array in one, which is only read", done.stderr)
                        self.assertEqual(sorted(os.listdir(self.directory)), before)
            np.savez(self.file("y.npz"), x=np.zeros(3))
        for name in ("x:y.npy", "d.npz:e/x.npy", "npz", ".npz.npy", "a.npz.npy"):
            done = tmactl("copy", self.file("in.npy"), self.file(name), socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_explain(self):
        np.savez_compressed(self.npz, **self.arrays)
        done = tmactl("explain", "--json", self.npz + ":x", "--permute", "1,0", socket_path=self.tmad.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["bytes"], 2 * 240000)

    def test_names(self):
        np.savez(self.npz, **self.arrays)
        listed = "it has x, y, a/b:c"
        self.refuses(self.npz, "a.npz: an archive; name an array in it", listed)
        self.refuses(self.npz + ":", "a.npz: an archive; name an array in it", listed)
        self.refuses(self.npz + ":z", "a.npz: there is no z in this archive", listed)
        self.refuses(self.npz + ":x.np", "there is no x.np", listed)
        np.savez(self.npz, **{f"array_{i}": np.array(i) for i in range(1000)})
        self.refuses(self.npz + ":z", "it has array_0, array_1, ", ", ...")
        self.refuses(self.file("b.npz") + ":x", "b.npz:x: cannot be opened (No such file")
        self.refuses(self.file("text", b"hello") + ":x", "text is not an .npz archive")
        self.file("a:b.npy")
        np.save(self.file("a:b.npy"), self.arrays["x"])
        self.copies(self.file("a:b.npy"), self.arrays["x"])

    def test_damage(self):
        np.savez_compressed(self.npz, **self.arrays)
        with open(self.npz, "rb") as file:
            good = file.read()
        with zipfile.ZipFile(self.npz) as archive:
            start, at = archive.start_dir, archive.getinfo("x.npy").header_offset
        bad = self.file("bad.npz")

        def change(offset, with_what):
            return good[:offset] + with_what + good[offset + len(with_what):]
        rows = (("no directory", good[:start], "it has no directory"), ("cut", good[:-30], "it has no directory"),
                ("directory elsewhere", good[:-6] + struct.pack("<L", len(good)) + good[-2:], "truncated"),
                ("member elsewhere", change(start + 42, struct.pack("<L", 1)), "not where its directory says"),
                ("too large", change(start + 20, struct.pack("<L", len(good))), "larger than its data in the file"),
                ("encrypted", change(start + 8, b"\x01"), "x is encrypted"), ("packed by lzma", change(start + 10, b"\x0e"), "method 14"),
                ("another checksum", change(start + 16, b"abcd"), "does not match its checksum"),
                ("bytes changed", change(at + 300, b"\xff" * 200), "damaged archive"))
        for name, data, word in rows:
            with self.subTest(name=name):
                self.file("bad.npz", data)
                self.refuses(bad + ":x", "bad.npz", word)
        for offset in [*range(at, at + 80, 7), *range(start, len(good), 7)]:  # whatever it is, it is said and does no harm
            self.file("bad.npz", change(offset, b"\xff\xff\xff\xff"))
            done = tmactl("copy", bad + ":x", self.dst, socket_path=self.tmad.path, errors="replace")
            self.assertIn((done.returncode, done.stderr.count("\n")), ((0, 0), (1, 1)), done.stderr)


if __name__ == "__main__":
    tap.main()
