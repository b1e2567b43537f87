"""The checks of limits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import Limit, task
from tests.integration.checks.conftest import found
from tests.support.factories import make_job
from tests.support.rows import in_quotes


def limited(identifier: str, *limits: Limit) -> None:
    task(identifier, limit=limits)(lambda payload: None)


def test_tasks_that_share_a_limit__must_agree_on_its_numbers() -> None:
    limited("a", Limit("account:{account}", concurrency=3))
    limited("b", Limit("account:{account}", concurrency=3), Limit("account:{account}", rate="1/s", name="rate"))
    limited("c", Limit("stripe", rate="5/s"))
    assert found() == []
    limited("d", Limit("account:{account}", concurrency=4, fair=True))
    (error,) = found()
    assert error.id == "graphile_worker.E022"
    assert error.msg.startswith(
        "The limit 'account:{account}': expected the same numbers in all its tasks, got 3 at once in 'a', "
    )
    assert ", and 4 at once, fair in 'd', " in error.msg


def test_setting__names_limits_that_exist(configure: Any) -> None:
    limited("a", Limit("account:{account}", rate="10/m"))
    configure(LIMITS={"account:{account}": {"rate": "5/m", "concurrency": 3}})
    assert found() == []
    configure(LIMITS={"acount:{account}": {"rate": "5/m"}})
    (warning,) = found()
    assert warning.id == "graphile_worker.W008"
    assert warning.msg == (
        'GRAPHILE_WORKER["LIMITS"]["acount:{account}"]: expected the name of a limit, got \'acount:{account}\', which '
        "no task of this project has. Did you mean 'account:{account}'?"
    )
    configure(LIMITS={"account:{account}": {"burst": 10}})
    (error,) = found()
    assert error.id == "graphile_worker.E023"
    assert "expected a burst of less than the rate, got {'burst': 10} for the limit 10/m." in error.msg


def test_setting_without_any_limit__is_told(configure: Any) -> None:
    configure(LIMITS={"a": {"concurrency": 3}})
    assert [warning.id for warning in found()] == ["graphile_worker.W008"]


@pytest.mark.django_db
class TestOtherWorkers:
    def test_unregistered_worker__is_told_while_limits_are_in_use(self, worker_schema: str) -> None:
        make_job("a", locked_by="worker-ab12", attempts=1)
        with connection.cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_workers"
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('django-worker-ours', 60)")
        make_job("a", locked_by="django-worker-ours/7", attempts=1)
        assert found(databases=["default"]) == []
        limited("a", Limit(concurrency=3))
        (warning,) = found(databases=["default"])
        assert warning.id == "graphile_worker.W007"
        assert warning.msg.endswith("as tasks have limits (a), got worker-ab12, not registered.")

    def test_session_that_listens_like_node__is_told(self, worker_schema: str, raw_connection: Any) -> None:
        limited("a", Limit(concurrency=3))
        session = raw_connection()
        session.execute('LISTEN "jobs:insert"; LISTEN "worker:migrate";')
        (warning,) = found(databases=["default"])
        assert f"got session {session.info.backend_pid}, not registered." in warning.msg
