"""What runworker shows before it works."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_graphile_worker import conf
from django_graphile_worker.routing import places_to_serve
from django_graphile_worker.worker.process.start import banner
from django_graphile_worker.worker.process.worker_process import build_runners


def _banner(**overrides: Any) -> str:
    once = overrides.pop("once", False)
    settings = conf.current().replace(**overrides)
    return banner(build_runners(places_to_serve(change=lambda _: settings), with_cron=not once), once=once)


def test_banner__says_what_was_started_and_how_it_lives(worker_schema: str) -> None:
    shown = _banner(concurrency=4, processes=3, tasks=["send_*"])
    assert shown.startswith("django-graphile-worker ")
    for part in (
        "database     default (",
        f"schema       {worker_schema}",
        "tasks        send_newsletter, send_receipt",
        "concurrency  4 in each of 3 processes",
        "LISTEN, and a poll every 2 s",
        "Ctrl-C",
    ):
        assert part in shown
    assert "charge_card" not in shown.split("recurring")[0]
    assert "count_orders" in shown.split("recurring")[1]


def test_banner__says_which_globs_match_nothing_and_what_there_is() -> None:
    alone = _banner(tasks=["nothing_like_this", "nor_*"])
    assert "none: nothing matches 'nothing_like_this', 'nor_*'. There are: " in alone
    assert "send_receipt" in alone.split("There are: ")[1]
    assert "tasks        send_newsletter, send_receipt; nothing matches 'nor_*'\n" in _banner(tasks=["send_*", "nor_*"])
    assert "none: all are excluded by '*'. There are: " in _banner(exclude_tasks=["*"])


def test_banner__never_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "PASSWORD", "hush-hush")
    assert "hush-hush" not in _banner()
