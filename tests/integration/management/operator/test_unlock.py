"""manage.py graphile_worker unlock."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.operating import DEAD, LIVE, execute, job_row, make_worker, operate

pytestmark = pytest.mark.django_db


def test_unlock__frees_what_a_stranger_holds() -> None:
    job_id = make_job("a", locked_by="worker-node", queue_name="mail")
    make_queue("mail", locked_by="worker-node")
    said = operate("unlock", "worker-node")
    assert "1 job and 1 queue" in said.out
    assert "no heartbeat" in said.err
    assert job_row(job_id, "locked_by", "locked_at") == (None, None)
    assert execute("select locked_by from {schema}._private_job_queues") == [(None,)]


def test_unlock__refuses_a_worker_that_beats_unless_forced() -> None:
    make_worker(LIVE)
    make_worker(DEAD, beat=minutes_ago(2))
    live_job, dead_job = make_job("a", locked_by=LIVE), make_job("a", locked_by=DEAD)
    with pytest.raises(CommandError, match=rf"{LIVE} \(alive, 1 job.*second time.*--force"):
        operate("unlock", DEAD, LIVE)
    assert (job_row(live_job, "locked_by"), job_row(dead_job, "locked_by")) == ((LIVE,), (DEAD,))
    operate("unlock", DEAD, LIVE, "--force")
    assert (job_row(live_job, "locked_by"), job_row(dead_job, "locked_by")) == ((None,), (None,))


def test_unlock__of_a_mistyped_worker_suggests_and_frees_nobody() -> None:
    job_id = make_job("a", locked_by="worker-node")
    with pytest.raises(
        CommandError, match=r"^No worker was unlocked: .* held by 'worker-nod'\. Did you mean 'worker-node'"
    ):
        operate("unlock", "worker-nod", "worker-node")
    assert job_row(job_id, "locked_by") == ("worker-node",)
