"""What a job leaves of its payload, and of the errors of its items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_graphile_worker import (
    add_job,
    run_once,
)
from django_graphile_worker.models import Job
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def decrypting(get_result: Any) -> Any:
    return lambda job: get_result(replace(job, payload=[{"card": 1}, {"card": 2}]))


def charge(payload: list[Any]) -> list[Any]:
    return [None, ValueError("refused")]


@pytest.mark.parametrize(
    ("payload", "kept"), [({"enc": "W3si"}, {"enc": "W3si"}), (["first", "second"], ["second"]), (["all"], ["all"])]
)
def test_rewritten_payload__is_never_stored(payload: Any, kept: Any) -> None:
    with own_tasks(charge):
        add_job("charge", payload)
        run_once(middleware=[f"{__name__}.decrypting"])
    assert Job.objects.get().payload == kept
