"""Answers the refresh of an open page with the parts of it that changed.

A region is an element with ``data-refresh`` and an id. A part of a region is an element with ``data-key``, such as a
row of a table. The request has the hashes of the regions and parts that the page shows. The answer has the other
regions, each in a ``<template>``, so that a browser can parse it wherever it belongs; of a part that the page shows
already, the answer has only the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

from django.http import HttpRequest
from django.template.response import TemplateResponse

HEADER = "X-Graphile-Worker-Refresh"

# The values of attributes are escaped, so no ">" is inside a tag and no tag is inside a value.
_REGION = re.compile(r'<([a-z]+)\b(?=[^>]*\sdata-refresh\b)(?=[^>]*\sid=")[^>]*>')
_PART = re.compile(r'<([a-z]+)\b(?=[^>]*\sdata-key=")[^>]*>')
# Django masks the token anew for each response.
_TOKEN = re.compile(r'(name="csrfmiddlewaretoken" value=")[^"]*')
_TITLE = re.compile(r"<title>[^<]*</title>")


def is_refresh(request: HttpRequest) -> bool:
    """Return whether the request comes from an open page that refreshes itself."""
    return HEADER in request.headers


def send_changes_only(request: HttpRequest, response: TemplateResponse) -> None:
    """Reduce the response, when it has been rendered, to the regions that the page does not show yet."""
    known = frozenset(request.headers[HEADER].split())

    def reduce(rendered: TemplateResponse) -> None:
        rendered.headers[HEADER] = "1"
        changed = changed_regions(rendered.content.decode(), known)
        rendered.content = changed
        if not changed and rendered.status_code == 200:
            rendered.status_code = 204

    response.add_post_render_callback(reduce)


def changed_regions(page: str, known: frozenset[str]) -> str:
    """Return the regions of a page whose hashes are not known, and the title of the page; "" if all are known."""
    regions = [region for region in _elements(page, _REGION) if region.hash not in known]
    if not regions:
        return ""
    title = _TITLE.search(page)
    templates = "".join(f"<template>{region.opening}{_parts(region, known)}</template>" for region in regions)
    return (title[0] if title else "") + templates


def _parts(region: _Element, known: frozenset[str]) -> str:
    """Return what follows the opening tag of a region, without what its known parts contain."""
    pieces, position = [], 0
    for part in _elements(region.rest, _PART):
        pieces.append(region.rest[position : part.start])
        pieces.append(part.placeholder if part.hash in known else part.opening + part.rest)
        position = part.end
    return "".join(pieces) + region.rest[position:]


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a page, and its place in the text."""

    start: int
    end: int
    name: str
    # The opening tag, and everything up to the end of the closing tag.
    tag: str
    rest: str

    @property
    def hash(self) -> str:
        text = _TOKEN.sub(r"\1", self.tag + self.rest)
        return blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def opening(self) -> str:
        return f'{self.tag[:-1]} data-hash="{self.hash}">'

    @property
    def placeholder(self) -> str:
        return f"{self.tag[:-1]} data-same></{self.name}>"


def _elements(text: str, opening: re.Pattern[str]) -> Iterator[_Element]:
    """Yield the outermost elements with such an opening tag."""
    position = 0
    while found := opening.search(text, position):
        position = _end(text, found[1], found.end())
        yield _Element(found.start(), position, found[1], found[0], text[found.end() : position])


def _end(text: str, name: str, position: int) -> int:
    """Return where the element ends whose opening tag ends at this position."""
    depth = 1
    for tag in _tags(name).finditer(text, position):
        depth += -1 if tag[0].startswith("</") else 1
        if depth == 0:
            return tag.end()
    return len(text)


@cache
def _tags(name: str) -> re.Pattern[str]:
    return re.compile(rf"<{name}\b|</{name}>")
