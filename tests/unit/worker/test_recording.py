"""Records of attempts, as the statements take them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import conf
from django_graphile_worker.sql.releases import KeptResults
from django_graphile_worker.worker import recording
from django_graphile_worker.worker.outcomes import Recorded
from django_graphile_worker.worker.recording import Recording
from tests.support.factories import TOO_DEEP
from tests.support.slot import make_claim, make_task


def make_recording(**settings: Any) -> Recording:
    return Recording(conf.Settings().replace(**settings), clock=lambda: 100.0)


def success(value_text: str | None = None, *, token: str = "a/1", **options: Any) -> Recorded:
    task = make_task(lambda payload: None, **options)
    return Recorded(make_claim(token=token), 0.25, None, 99.0, task, value_text)


def test_results__have_the_time_since_the_end_and_the_seconds_to_keep_them() -> None:
    outcomes = [success("1", keep_result=60), success("2", keeps_payload=True), success()]
    completed = make_recording(keep_results=5).completed(outcomes)
    assert completed.results == KeptResults(
        agos=[750_000] * 3,
        keeps=[60, 5.0, None],
        values=["1", "2", None],
        are_payloads_kept=[False, True, False],
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"order": 1, "password": {"a": 2}}', {"order": 1, "password": "••••••"}),
        ("[" + "1," * 40_000 + "1]", None),
        (TOO_DEEP, "••••••"),
    ],
)
def test_payloads_of_the_history__hide_secrets_and_are_not_long(text: str, shown: Any) -> None:
    recorder = make_recording(history=timedelta(days=1), history_payloads=True)
    told = recorder._history_payload(text)
    assert (None if told is None else json.loads(told)) == shown
    assert make_recording(history_payloads=True)._history_payload("{}") is None


def test_statement__takes_as_many_results_as_fit_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 10)
    outcomes = [success("x" * 6), success("x" * 4), success("x")]
    assert recording.in_one_statement(outcomes) == 2
    assert recording.in_one_statement([success("x" * 50), success("x")]) == 1
    assert recording.in_one_statement([success(), success()]) == 2
