"""Parses the error of a job, so that the page can fold frames of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_ERROR = 100_000

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|<frozen |node_modules|node:internal")
_HEADER = "Traceback (most recent call last):"


@dataclass(slots=True)
class Frame:
    """A frame of a traceback; lines of code are added while it is parsed."""

    file: str
    line: str
    function: str
    code: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.code)

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY.search(self.file))


@dataclass(slots=True)
class Block:
    """Adjacent parts of one kind: "text", "own" frames, or "library" frames."""

    kind: str
    text: str = ""
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ParsedError:
    """The first line of an error, and the rest in blocks."""

    summary: str
    blocks: list[Block]


def parse_error(error: str) -> ParsedError:
    """Split an error into blocks. Lines that are not part of a traceback become text."""
    text = error[:LONGEST_ERROR]
    summary, _, rest = text.partition("\n")
    blocks = list(_blocks(rest.strip("\n").split("\n"))) if rest.strip() else []
    # The last line of a traceback repeats the summary.
    if blocks and blocks[-1].kind == "text" and blocks[-1].text.strip() == summary.strip():
        blocks.pop()
    return ParsedError(summary, blocks)


def _blocks(lines: list[str]) -> Iterator[Block]:
    block: Block | None = None
    for line in lines:
        found = _FRAME.fullmatch(line)
        if block is not None and block.frames and not found and line.startswith("    "):
            block.frames[-1].code.append(line[4:])
            continue
        if not found and line.strip() == _HEADER:
            continue
        frame = Frame(found["file"], found["line"], found["function"] or "") if found else None
        kind = "text" if frame is None else "library" if frame.is_library else "own"
        if block is None or block.kind != kind:
            if block is not None:
                yield block
            block = Block(kind)
        if frame is None:
            block.text += line + "\n"
        else:
            block.frames.append(frame)
    if block is not None:
        yield block
