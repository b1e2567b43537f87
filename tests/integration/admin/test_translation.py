"""Every word on the pages can be translated: what remains without the translated words is data."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, record_statistics
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago

# Names that are not translated.
SAME = {"CSV", "JSON", "Python", "SQL", "UTC"}
SHOWN = re.compile(
    r'(?:title|aria-label|placeholder|data-(?:label|copy|paused|failed|some|all))="([^"]*)"',
)


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
    content = re.sub(r"(?s)<(pre|code|svg|option|datalist|time)\b.*?</\1>", " ", content)
    texts = [html.unescape(text) for text in [*SHOWN.findall(content), re.sub(r"<[^>]*>", " ", content)]]
    outside = [_without_marked(text) for text in texts]
    return {word for text in outside for word in re.findall(r"[A-Za-z_]{3,}", text)} - SAME


def _without_marked(text: str) -> str:
    before = None
    while before != text:
        before, text = text, re.sub(r"⟦[^⟦⟧]*⟧", " ", text)
    return text


def test_no_word_is_left_untranslated(admin_page: Client, worker_schema: str, request: pytest.FixtureRequest) -> None:
    make_worker("w1", tasks=["t1"], running=[{"job_id": 1, "task": "t1"}])
    make_worker("w2", silent=900)
    make_queue("q1", locked_by="w2")
    make_job("t1", queue_name="q1", key="k1", flags={"f": True})
    make_job("t2", locked_by="w9", locked_at=minutes_ago(300))
    failed = make_failed_job("t1", payload={"a": [1, {"b": 2}]}, error="E: x")
    record_statistics(worker_schema, "t1", succeeded=5)
    request.getfixturevalue("marked")
    for url in (
        pages.OVERVIEW, pages.JOBS, f"{pages.JOBS}?state=failed&q=ky:1", pages.job_url(failed), pages.job_url(10**9),
        pages.QUEUES, pages.WORKERS, pages.ERRORS, pages.ADD, f"{pages.JOBS}views/?state=failed", pages.HISTORY,
    ):  # fmt: skip
        assert untranslated(admin_page.get(url)) == set(), url
    asked = admin_page.post(pages.ACT, {"action": "reschedule", "all": "1"})
    assert untranslated(asked) == set()
    assert untranslated(admin_page.post(pages.WORKERS + "unlock/", {"worker": "w9"})) == set()
