# SPDX-License-Identifier: Apache-2.0
"""Reads the project's tables (*.def): files of NAME(argument, ...) rows in C's syntax, which the C sources include."""
import re


class Fault(Exception):
    """An error in the sources of the manual. Its text names the file and, if known, the line."""


_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unquote(literal):
    return re.sub(r"\\(.)", lambda m: _ESCAPES[m.group(1)], literal[1:-1])


class Row:
    """A row: the name of its macro, and its arguments (strings without their quotes, everything else as written)."""

    def __init__(self, path, line, name, arguments):
        self.path, self.line, self.name, self.arguments = path, line, name, arguments

    def __repr__(self):
        return f"{self.path}:{self.line}: {self.name}{tuple(self.arguments)}"


def _blank(text):
    """Returns the text with blanks in place of comments and preprocessor lines, so that lines keep their numbers."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/',
                  lambda m: m.group() if m.group()[0] == '"' else blank(m), text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", blank, text, flags=re.M)


def _argument(text):
    """Returns an argument: a string without its quotes, its parts joined; None for NULL; or what is written."""
    text = text.strip()
    if text.startswith('"'):
        rest = _LITERAL.sub("", text).strip()
        if rest:
            raise ValueError(f"{rest!r} beside a text")
        return "".join(unquote(part) for part in _LITERAL.findall(text))
    return None if text == "NULL" else re.sub(r"\s+", " ", text)


def _arguments(text, start):
    """Returns the arguments in the parentheses that open at start, and the position after them."""
    arguments, depth, at, first = [], 0, start, start + 1
    while at < len(text):
        literal = _LITERAL.match(text, at)
        if literal:
            at = literal.end()
            continue
        char = text[at]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                arguments.append(text[first:at])
                return arguments, at + 1
        elif char == "," and depth == 1:
            arguments.append(text[first:at])
            first = at + 1
        at += 1
    raise ValueError("a parenthesis is not closed")


def read(path, **columns):
    """Returns the rows of a table in order. columns: the macros that may occur, with their argument counts (None: any)."""
    with open(path, encoding="utf-8") as file:
        text = _blank(file.read())
    rows, at = [], 0
    while True:
        space = re.compile(r"\s*").match(text, at)
        at = space.end()
        line = text.count("\n", 0, at) + 1
        if at == len(text):
            return rows
        name = re.compile(r"([A-Z_]+)\(").match(text, at)
        if not name or name.group(1) not in columns:
            raise Fault(f"{path}:{line}: {text[at:at + 40].splitlines()[0]!r} is none of {', '.join(columns)}")
        try:
            parts, at = _arguments(text, name.end() - 1)
            arguments = [_argument(part) for part in parts]
        except ValueError as why:
            raise Fault(f"{path}:{line}: {why}") from None
        if columns[name.group(1)] not in (None, len(arguments)):
            raise Fault(f"{path}:{line}: {name.group(1)} has {len(arguments)} columns, not {columns[name.group(1)]}")
        rows.append(Row(path, line, name.group(1), arguments))
