# SPDX-License-Identifier: Apache-2.0
"""Parses the rows of bench_gpu's JSON and computes figures over many of them. Needs no GPU and no torch."""
import dataclasses
import json
import math

NEAR = 0.97  # A row below this ratio to the best other counts as slower.

ELEMENT_BYTES = {"bool": 1, "complex64": 8, "complex128": 16, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
                 **{f"{kind}{bits}": bits // 8 for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)}}


@dataclasses.dataclass(frozen=True)
class Row:
    """A transform and what bench_gpu measured of it. Shapes, strides and offsets count elements."""
    what: str
    dtype: str
    shape: tuple
    strides: tuple  # of the source; negative for reversed axes
    src_offset: int  # of element [0, ..., 0]
    dst_offset: int
    perm: tuple
    before: tuple
    after: tuple
    mode: str
    value: int
    family: str
    bytes: float  # read plus written
    ratio: float  # the copy's time divided by tmad's
    tmad_ns: float

    @property
    def label(self):
        return f"{self.what} {self.dtype} {list(self.shape)}"

    @property
    def element(self):
        return ELEMENT_BYTES[self.dtype]

    @property
    def dst_shape(self):
        return tuple(self.shape[axis] + before + after
                     for axis, before, after in zip(self.perm, self.before, self.after))

    @property
    def reversed(self):
        """Returns the source's reversed axes."""
        return tuple(axis for axis, stride in enumerate(self.strides) if stride < 0)

    @property
    def src_low(self):
        """Returns the lowest element of the source, counted from the start of its memory."""
        return self.src_offset + sum((n - 1) * min(stride, 0) for n, stride in zip(self.shape, self.strides))

    @property
    def src_elements(self):
        """Returns the number of elements from the start of the source's memory to its end."""
        return self.src_offset + sum((n - 1) * max(stride, 0) for n, stride in zip(self.shape, self.strides)) + 1

    @property
    def dst_elements(self):
        return self.dst_offset + math.prod(self.dst_shape)

    @property
    def kind(self):
        if any(margin > 0 for margin in self.before + self.after):
            return "pad" if self.mode == "constant" else "pad of another mode"
        if any(self.before + self.after):
            return "crop"
        return "reversed" if self.reversed else "gaps" if self.has_gaps else "permute"

    @property
    def has_gaps(self):
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides)):
            if stride != step:
                return True
            step *= n
        return False


def median(values):
    values, n = sorted(values), len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2


def row_of(node):
    return Row(what=node["what"], dtype=node["dtype"], shape=tuple(node["shape"]), strides=tuple(node["src_strides"]),
               src_offset=node["src_offset"], dst_offset=node["dst_offset"], perm=tuple(node["perm"]),
               before=tuple(node["before"]), after=tuple(node["after"]), mode=node["mode"], value=node["value"],
               family=node["family"], bytes=node["bytes"], ratio=node["ratio"]["median"],
               tmad_ns=median(node["tmad_ns"]))


def read_report(text):
    """Parses the output of bench_gpu --json into a description of the run and its rows. Raises ValueError if it is
    something else."""
    try:
        report = json.loads(text)
        rows = [row_of(node) for node in report["rows"] if not node["blocks"]]
        return report["run"], rows
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what bench_gpu --json prints: {error!r} is missing or wrong") from error


def read_results(text):
    """Parses the output of compare.py --out into a description of the run and a result for each row. Raises ValueError
    if it is something else."""
    try:
        first, *results = map(json.loads, text.splitlines())
        for result in results:
            against_best(result)
        if not results:
            raise ValueError("not what compare.py --out writes: there is no result")
        return first["run"], results
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what compare.py --out writes: {error!r} is missing or wrong") from error


@dataclasses.dataclass(frozen=True)
class Distribution:
    rows: int
    mean: float  # geometric
    tenth: float  # percentile
    worst: float

    @staticmethod
    def of(values):
        values = sorted(values)
        return Distribution(len(values), math.exp(sum(map(math.log, values)) / len(values)),
                            values[len(values) // 10], values[0])


def best_of(result):
    """Returns the best ratio among the others, or None if none has any."""
    return max((ratio for ratio in result["others"].values() if ratio), default=None)


def size_class(bytes_):
    """Returns the class of the source's and destination's size together, in powers of four, such as "64 to 256 MiB"."""
    low = 4 ** int(math.log2(max(bytes_ / 2, 1)) // 2)
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
    unit, name = next(pair for pair in units if low >= pair[0])
    return f"{low // unit} to {4 * low // unit} {name}"


def classes_of(result):
    """Returns the groups in which a row is counted."""
    return (("", "all"), ("what", result["kind"]), ("element", f"{result['element']:2} bytes"),
            ("family", result["family"]), ("side", size_class(result["bytes"])))


def grouped(results, value_of):
    """Returns values by (group, name), in the order of the groups; rows without a value are left out."""
    groups = {}
    for result in results:
        value = value_of(result)
        if value:
            for key in classes_of(result):
                groups.setdefault(key, []).append(value)
    order = ("", "what", "element", "family", "side")
    return dict(sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def against_best(result):
    best = best_of(result)
    return best and result["tmad"] / best


def report_lines(results):
    """The tables, line by line. A result: label, kind, element, family, bytes; tmad and, by name, others: ratios to the
    copy, None where one of the others cannot; tmad_ns and others_ns: the same as times of a call."""
    names = list(dict.fromkeys(name for result in results for name in result["others"]))
    yield "| ratio to a device copy | rows | geometric mean | 10th percentile | worst |"
    yield "|---|---|---|---|---|"
    sides = [("tmad", lambda result: result["tmad"])]
    sides += [(name, lambda result, name=name: result["others"].get(name)) for name in names]
    sides += [("the best of the others", best_of)]
    for name, value_of in sides:
        values = [value for value in map(value_of, results) if value]
        if values:
            d = Distribution.of(values)
            yield f"| {name} | {d.rows} | {d.mean:.3f} | {d.tenth:.3f} | {d.worst:.3f} |"
    yield ""
    yield f"| tmad to the best of the others | | rows | geometric mean | 10th percentile | worst | under {NEAR} |"
    yield "|---|---|---|---|---|---|---|"
    for (group, name), values in grouped(results, against_best).items():
        yield f"| {group} | {name} {cells_of(values)}"
    yield ""
    yield f"| tmad to each, by the device's clock | rows | geometric mean | 10th percentile | worst | under {NEAR} |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        values = [result["others_ns"][name] / result["tmad_ns"] for result in results if result["others"].get(name)]
        if values:
            yield f"| {name} {cells_of(values)}"
    yield ""
    yield "the ten rows that are furthest behind the best of the others:"
    behind = sorted((result for result in results if against_best(result)), key=against_best)
    for result in behind[:10]:
        others = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result["others"].items() if ratio)
        yield f"{against_best(result):.2f}  {result['label']} by {result['family']}: {result['tmad']:.2f}; {others}"


def cells_of(values):
    d, under = Distribution.of(values), sum(value < NEAR for value in values)
    return (f"| {d.rows} | {d.mean:.3f} | {d.tenth:.3f} | {d.worst:.3f} | {under} ({100 * under / d.rows:.1f} %) |")
