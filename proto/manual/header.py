# SPDX-License-Identifier: Apache-2.0
"""Reads tmaclient.h, which is also the library's documentation, from top to bottom.

A group begins with a title, /* ---- Title ---- */. Lines without a blank line between them are one entry. A comment
at the start of an entry is about all of it; a comment after a declaration is about that declaration. A function
without either is an error, and so is anything that is not a title, comment, function or type.
"""
import re

from tables import Fault


class Function:
    def __init__(self, result, name, parameters, note):
        self.result, self.name, self.parameters, self.note = result, name, parameters, note


class Entry:
    """A comment (text; "" if there is none) and what it describes: functions, or types as the header writes them."""

    def __init__(self, line):
        self.line, self.text, self.functions, self.types = line, "", [], []


class Group:
    def __init__(self, title, line):
        self.title, self.line, self.entries = title, line, []

    @property
    def functions(self):
        return [function for entry in self.entries for function in entry.functions]


_TITLE = re.compile(r"/\* -{4} (.+?) -{4,} \*/")
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_LICENSE = re.compile(r"(?:(?:/\*|//) SPDX-[^\n]*\n)?")
_FUNCTION = re.compile(r"TMA_API\s+((?:const\s+)?(?:enum\s+|struct\s+)?\w+\s*\*?)\s*(tma_\w+)\(([^;]*)\);", re.S)
_TYPE = re.compile(r"(?:typedef (?:struct )?\w+ \w+;|(?:struct|enum) \w+;|(?:struct|enum) \w+ \{.*?\n\};|#define \w+ +(?:\w+|\([^\n]*\)))"
                   r"(?:[ \t]*/\*[^\n]*\*/)?", re.S)


def comment_text(comment):
    """Returns the text of a comment, without the marks of a comment at the ends of its lines."""
    text = re.sub(r"^/\*+ ?|\s*\*+/$", "", comment)
    return "\n".join(re.sub(r"^\s*\* ?", "", line).rstrip() for line in text.split("\n"))


def opening(text):
    """Returns (the text of the comment that opens a source file, the code after it)."""
    first = _COMMENT.match(text, _LICENSE.match(text).end())
    if not first:
        raise ValueError("no comment opens the file")
    return comment_text(first.group()), text[first.end():].strip("\n")


def _parameters(text):
    text = " ".join(_COMMENT.sub(" ", text).split())
    return [] if text == "void" else text.split(", ")


def read(path):
    """Returns (the text of the comment that opens the header, its groups)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    first = _COMMENT.match(text, _LICENSE.match(text).end())
    start = _TITLE.search(text)
    end = text.rfind("#ifdef __cplusplus")
    if not first or not start or end < start.start():
        raise Fault(f"{path}: a comment, groups and the end of extern \"C\" are looked for, in this order")
    groups, entry, at = [], None, start.start()

    def here():
        return f"{path}:{text.count(chr(10), 0, at) + 1}"

    while at < end:
        blank = re.compile(r"\n[ \t]*(?=\n)|[ \t]+|\n").match(text, at)
        if blank:
            if text[blank.end():blank.end() + 1] == "\n" or text[blank.start() - 1:blank.end()] == "\n\n":
                entry = None
            at = blank.end()
            continue
        title = _TITLE.match(text, at)
        if title:
            groups.append(Group(title.group(1), text.count("\n", 0, at) + 1))
            entry, at = None, title.end()
            continue
        if entry is None:
            entry = Entry(text.count("\n", 0, at) + 1)
            groups[-1].entries.append(entry)
        comment, function, kind = (p.match(text, at) for p in (_COMMENT, _FUNCTION, _TYPE))
        if comment:
            if entry.functions or entry.types:
                raise Fault(f"{here()}: a comment after what it is about; a blank line starts an entry")
            entry.text, at = comment_text(comment.group()), comment.end()
        elif function:
            at = function.end()
            note = re.compile(r"[ \t]*(/\*.*?\*/)", re.S).match(text, at)
            if note:
                at = note.end()
            entry.functions.append(Function(" ".join(function.group(1).split()), function.group(2),
                                            _parameters(function.group(3)),
                                            comment_text(note.group(1)) if note else ""))
        elif kind:
            entry.types.append(kind.group())
            at = kind.end()
        else:
            raise Fault(f"{here()}: {text[at:at + 50].splitlines()[0]!r} is no comment, type or function")
    check(path, groups)
    return comment_text(first.group()), groups


def check(path, groups):
    for group in groups:
        for entry in group.entries:
            for function in entry.functions:
                if not entry.text and not function.note:
                    raise Fault(f"{path}:{entry.line}: {function.name} has no comment")
        if not group.functions:
            raise Fault(f"{path}:{group.line}: the group {group.title!r} has no function")
