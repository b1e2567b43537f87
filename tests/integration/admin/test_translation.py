"""Every word on the pages can be translated, and is: what remains without the translated words is data."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import polib
import pytest
from django.test import Client
from django.utils import translation

from django_graphile_worker import api
from tests.support import admin_pages as pages
from tests.support import catalogues
from tests.support.admin_pages import make_worker, record_statistics
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago

# Names that are not translated.
SAME = {"Python", "SQL", "UTC", "CSV", "JSON"}
ATTRIBUTES = (
    "title",
    "aria-label",
    "placeholder",
    "data-label",
    "data-copy",
    "data-paused",
    "data-failed",
    "data-some",
    "data-all",
    "alt",
)
SHOWN = re.compile(rf'(?:{"|".join(ATTRIBUTES)})="([^"]*)"')
# Elements with data of the project.
DATA = {"bdi", "code", "kbd", "pre", "datalist", "script", "style", "svg"}
MOST_PAGES = 80


def mark(text: str) -> str:
    return f"⟦{text}⟧"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark every translated text."""
    trans: Any = translation._trans  # type: ignore[attr-defined]
    monkeypatch.setattr(trans, "gettext", lambda message: mark(message))
    monkeypatch.setattr(trans, "pgettext", lambda context, message: mark(message))
    monkeypatch.setattr(trans, "ngettext", lambda one, many, number: mark(one if number == 1 else many))


def untranslated(response: Any) -> set[str]:
    """Return words of at least three letters that were not translated."""
    content = pages.body(response).split('id="content-main"')[1].partition(">")[2].split("<footer")[0]
    content = re.sub(r"(?s)<(pre|code|kbd|svg|option|datalist|time)\b.*?</\1>", " ", content)
    texts = [html.unescape(text) for text in [*SHOWN.findall(content), re.sub(r"<[^>]*>", " ", content)]]
    outside = [_without_marked(text) for text in texts]
    return {word for text in outside for word in re.findall(r"[A-Za-z_]{3,}", text)} - SAME


def _without_marked(text: str) -> str:
    before = None
    while before != text:
        before, text = text, re.sub(r"⟦[^⟦⟧]*⟧", " ", text)
    return text


@pytest.fixture
def failed(worker_schema: str) -> int:
    """Create jobs in all states, workers and statistics; return the id of a failed job."""
    make_worker("w1", tasks=["t1"], running=[{"job_id": 1, "task": "t1"}])
    make_worker("w2", silent=900)
    make_queue("q1", locked_by="w2")
    make_job("t1", queue_name="q1", key="k1", flags={"f": True})
    make_job("t1", run_at=minutes_ago(-600))
    make_job("t2", locked_by="w9", locked_at=minutes_ago(300))
    make_job("t1", attempts=2, last_error="E: x", run_at=minutes_ago(-5))
    record_statistics(worker_schema, "t1", succeeded=5)
    return make_failed_job("t1", payload={"a": [1, {"b": 2}]}, error="E: x")


def test_no_word_is_left_untranslated(admin_page: Client, failed: int, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("marked")
    for url in (
        pages.OVERVIEW, pages.JOBS, f"{pages.JOBS}?state=failed&q=ky:1", pages.job_url(failed), pages.job_url(10**9),
        pages.QUEUES, pages.WORKERS, pages.ERRORS, pages.ADD, pages.PAUSES, pages.LIMITS, pages.HISTORY,
    ):  # fmt: skip
        assert untranslated(admin_page.get(url)) == set(), url
    asked = pages.act_on_all(admin_page, "reschedule")
    assert untranslated(asked) == set()
    assert untranslated(admin_page.post(pages.WORKERS + "unlock/", {"worker": "w9"})) == set()


class TextParser(HTMLParser):
    """Collects the texts of a page that are not data, and its links."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: list[str] = []
        self._inside: list[str] = []
        self.feed(pages.body(response))

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        given = dict(attributes)
        self.texts += [given[name] or "" for name in ATTRIBUTES if name in given]
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag in DATA:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._inside and data.strip():
            self.texts.append(" ".join(data.split()))


def _crawl(client: Client, url: str) -> Iterator[tuple[str, TextParser]]:
    """Open a page of each kind that can be reached by links: two addresses of a kind differ in numbers and queries."""
    waiting = [url]
    kinds: set[str] = set()
    while waiting and len(kinds) < MOST_PAGES:
        url = waiting.pop(0)
        kind = re.sub(r"\d+", "0", re.sub(r"=[^&]*", "", url))
        if kind in kinds or not url.startswith(pages.BASE):
            continue
        kinds.add(kind)
        response = client.get(url)
        if response.headers["Content-Type"].startswith("text/html"):
            parsed = TextParser(response)
            waiting += [f"{url.partition('?')[0]}{link}" if link.startswith("?") else link for link in parsed.links]
            yield url, parsed


def english_texts(language: str) -> Callable[[str], bool]:
    """Return a function that finds the English texts of the catalogue that have another translation."""
    simple, patterns = set(), []
    for entry in polib.pofile(str(catalogues.catalogue_path(language))):
        if entry.msgid_plural or entry.msgid == entry.msgstr:
            continue
        if "%(" not in entry.msgid:
            simple.add(" ".join(entry.msgid.split()))
        elif len(re.findall(r"[A-Za-z]{3,}", re.sub(r"%\(\w+\)s", "", entry.msgid))) > 1:
            parts = [re.escape(part) for part in re.split(r"%\(\w+\)s", entry.msgid)]
            patterns.append(".+?".join(parts))
    # Words that are the same in the other language, in another sense.
    catalogue = {" ".join(entry.msgstr.split()) for entry in polib.pofile(str(catalogues.catalogue_path(language)))}
    pattern = re.compile("|".join(patterns))
    return lambda text: (text in simple and text not in catalogue) or pattern.fullmatch(text) is not None


@pytest.fixture
def accepts(admin_page: Client, settings: Any) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the language of the browser, on a site that respects it."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]

    def accept(language: str) -> None:
        admin_page.defaults["HTTP_ACCEPT_LANGUAGE"] = language

    # The middleware leaves the language of the last request active.
    with translation.override("en"):
        yield accept


DATES = {"de": r"\d+\. \w+ 20\d\d \d\d:\d\d", "fr": r"\d+ \S+ 20\d\d \d\d:\d\d"}


@pytest.mark.parametrize("language", DATES)
def test_pages_are_wholly_in_the_language_of_the_browser(
    admin_page: Client, failed: int, settings: Any, accepts: Callable[[str], None], language: str
) -> None:
    crontab = "0 4 * * 1-5 t1 ?id=nightly&tz=Europe/Paris"
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": crontab}
    api.pause(task="t1", reason="r1", by="u1")
    pages.act(admin_page, "reschedule", failed, confirmed="1", priority="3")
    accepts(language)
    is_english = english_texts(language)
    opened = dict(_crawl(admin_page, pages.OVERVIEW))
    assert {url.partition("?")[0] for url in opened} >= {*pages.ALL_PAGES, pages.job_url(failed)}
    for url, parsed in opened.items():
        assert [text for text in parsed.texts if is_english(text)] == [], url
        assert not any(re.search(r"\b[ap]\.m\.", text) for text in parsed.texts), url
    details = opened[pages.job_url(failed)].texts
    assert any(re.search(DATES[language], text) for text in details)
