"""Reads JSON5 (JSON with comments, unquoted keys, trailing commas …) in time proportional to the length of the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unicodedata import category

_BLANK = re.compile(
    r"(?:[\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]++"
    r"|//[^\n\r\u2028\u2029]*+|/\*(?s:.)*?\*/)*+"
)
# Possessive quantifiers: a text that is not a string fails after one pass over its characters.
_STRING = {
    '"': re.compile(r'"((?:[^"\\\n\r]++|\\(?:\r\n|(?s:.)))*+)"'),
    "'": re.compile(r"'((?:[^'\\\n\r]++|\\(?:\r\n|(?s:.)))*+)'"),
}
_ESCAPE = re.compile(
    r"\\(?:(?P<end>\r\n|[\n\r\u2028\u2029])|u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<unicode>[0-9a-fA-F]{4})|x(?P<hex>[0-9a-fA-F]{2})|(?P<zero>0(?![0-9]))|(?P<other>[^ux0-9])|(?P<bad>(?s:.)))"
)
_NAMED_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<hex>0[xX][0-9a-fA-F]+)|(?P<word>Infinity|NaN)"
    r"|(?P<decimal>(?:(?:0|[1-9][0-9]*+)(?P<fraction>\.[0-9]*+)?|(?P<bare>\.[0-9]++))(?P<exponent>[eE][+-]?[0-9]++)?))"
    r"(?![\w$.])"
)
_NAME = re.compile(r"(?:[^\W\d]|\$|\\u[0-9a-fA-F]{4})(?:[\w$\u200c\u200d]|\\u[0-9a-fA-F]{4})*+")
_REST_OF_NAME = re.compile(r"(?:[\w$\u200c\u200d]|\\u[0-9a-fA-F]{4})*+")
# Combining marks, such as the vowel signs of many scripts, and connecting punctuation. A pattern has no word for them.
_ALSO_IN_NAMES = frozenset({"Mn", "Mc", "Pc"})
_WORDS = {"true": True, "false": False, "null": None}


class Json5Error(ValueError):
    """The text is not JSON5; ``offset`` is the position of the first character that does not fit."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} at column {offset + 1}")
        self.offset = offset


def loads(text: str) -> Any:
    """Return the value of a JSON5 text; raise Json5Error, or RecursionError if it is nested too deeply."""
    reader = _Reader(text)
    value = reader.value()
    if reader.peek():
        raise reader.unexpected()
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def peek(self) -> str:
        """Skip blanks and comments, and return the next character; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at : self._at + 1]

    def unexpected(self) -> Json5Error:
        found = self._text[self._at : self._at + 1]
        return Json5Error(f"Unexpected {found!r}" if found else "Unexpected end of the text", self._at)

    def value(self) -> Any:
        character = self.peek()
        if character == "{":
            return self._object()
        if character == "[":
            return self._array()
        if character in _STRING:
            return self._string(character)
        return self._number() if character in "+-.0123456789IN" and character else self._word()

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def read() -> None:
            key = self._key()
            if self.peek() != ":":
                raise self.unexpected()
            self._at += 1
            found[key] = self.value()

        self._list(read, "}")
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        self._list(lambda: found.append(self.value()), "]")
        return found

    def _list(self, read: Callable[[], None], end: str) -> None:
        """Read the members between brackets; a comma may follow the last."""
        self._at += 1
        while self.peek() != end:
            read()
            if self.peek() == ",":
                self._at += 1
            elif self.peek() != end:
                raise self.unexpected()
        self._at += 1

    def _key(self) -> str:
        character = self.peek()
        if character in _STRING:
            return self._string(character)
        begin = self._at
        self._at = self._end_of_name()
        return _unescaped(self._text[begin : self._at], begin)

    def _end_of_name(self) -> int:
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self.unexpected()
        end = name.end()
        while end < len(self._text) and category(self._text[end]) in _ALSO_IN_NAMES:
            rest = _REST_OF_NAME.match(self._text, end + 1)
            end = rest.end() if rest else end + 1
        return end

    def _string(self, quote: str) -> str:
        found = _STRING[quote].match(self._text, self._at)
        if found is None:
            raise Json5Error("A string without an end", self._at)
        self._at = found.end()
        return _unescaped(found[1], found.start(1))

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self.unexpected()
        sign = -1 if found["sign"] == "-" else 1
        number = _number(found, self._at)
        self._at = found.end()
        return sign * number

    def _word(self) -> Any:
        end = self._end_of_name()
        word = self._text[self._at : end]
        if word not in _WORDS:
            raise self.unexpected()
        self._at = end
        return _WORDS[word]


def _number(found: re.Match[str], at: int) -> int | float:
    if found["hex"]:
        return int(found["hex"], 16)
    if found["word"]:
        return float(found["word"])
    if found["fraction"] is None and found["bare"] is None and found["exponent"] is None:
        try:
            return int(found["decimal"])
        except ValueError:
            raise Json5Error("A number with too many digits", at) from None
    return float(found["decimal"])


def _unescaped(text: str, at: int) -> str:
    if "\\" not in text:
        return text

    def meaning(escape: re.Match[str]) -> str:
        if escape["bad"]:
            raise Json5Error(f"Unexpected {escape[0]!r}", at + escape.start())
        return _meaning(escape)

    return _ESCAPE.sub(meaning, text)


def _meaning(escape: re.Match[str]) -> str:
    if escape["high"]:
        pair = int(escape["high"], 16) - 0xD800, int(escape["low"], 16) - 0xDC00
        return chr(0x10000 + (pair[0] << 10) + pair[1])
    code = escape["unicode"] or escape["hex"]
    if code:
        return chr(int(code, 16))
    if escape["zero"]:
        return "\0"
    return "" if escape["end"] else _NAMED_ESCAPES.get(escape["other"], escape["other"])
