"""The undo of actions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import undo
from tests.support.admin_pages import act, messages
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

COLUMNS = ("id", "run_at", "priority", "attempts", "max_attempts", "last_error", "is_available")


def undo_url(response: Any) -> str:
    (found,) = re.findall(r'href="([^"]*/undo/[^"]*)"', str(next(iter(response.context["messages"]))))
    return str(found)


def rows() -> list[Any]:
    return list(Job.objects.order_by("pk").values_list(*COLUMNS))


@pytest.mark.parametrize(
    ("action", "given"),
    [
        ("run_now", {}),
        ("run_next", {}),
        ("retry", {}),
        ("reschedule", {"run_at": "2090-01-01T00:00:00", "priority": "4", "max_attempts": "9", "confirmed": "1"}),
        ("fail", {"reason": "Closed.", "confirmed": "1"}),
    ],
)
def test_undo__restores_the_former_values(admin_page: Client, action: str, given: dict[str, str]) -> None:
    ids = [
        make_job("send", run_at=minutes_ago(5), priority=2),
        make_job("send", run_at=minutes_ago(-9)),
        make_job("send", run_at=minutes_ago(-9), attempts=2, last_error="KeyError: 1\n\nframes"),
        make_failed_job("send", run_at=minutes_ago(-9)),
    ]
    make_job("another")
    before = rows()
    url = undo_url(act(admin_page, action, *ids, **given))
    assert rows() != before
    asked = admin_page.get(url)
    assert "Undo “" in asked.context["title"]
    done = admin_page.post(url, follow=True)
    assert rows() == before
    assert re.fullmatch(r"\d jobs? (is as it was|are as they were) before\.", messages(done)[0])
    again = admin_page.get(url, follow=True)
    assert "can no longer be undone" in messages(again)[0]


def test_undo__leaves_what_has_changed_since(admin_page: Client) -> None:
    ids = [make_job("send", run_at=minutes_ago(-9)) for _ in range(4)]
    same, running, moved, ended = ids
    url = undo_url(act(admin_page, "run_now", *ids))
    execute("update {schema}._private_jobs set locked_at = now(), locked_by = 'w' where id = %s", [running])
    execute("update {schema}._private_jobs set priority = 5, updated_at = now() + '1s' where id = %s", [moved])
    execute("delete from {schema}._private_jobs where id = %s", [ended])
    assert sorted(messages(admin_page.post(url, follow=True))) == [
        "1 job is as it was before.",
        "1 job was not restored, because a worker is running it.",
        "1 job was not restored, because it has ended.",
        "1 job was not restored, because it was changed since. Its state is “Ready”.",
    ]
    assert Job.objects.get(pk=same).run_at > minutes_ago(0)
    assert Job.objects.get(pk=moved).run_at <= minutes_ago(0)


def test_undo__is_for_its_user_and_an_hour(admin_page: Client, client_with: Any) -> None:
    job_id = make_job("send", run_at=minutes_ago(-9))
    url = undo_url(act(admin_page, "run_now", job_id))
    other = client_with("reschedule_job")
    for client in (other, admin_page):
        if client is admin_page:
            execute("update {schema}._private_action_steps set made_at = now() - interval '61 minutes'")
        assert "can no longer be undone" in messages(client.post(url, follow=True))[0]
    assert Job.objects.get().run_at <= minutes_ago(0)
    act(admin_page, "run_next", job_id)
    assert execute("select count(*) from {schema}._private_action_steps") == [(0,)], "old actions are deleted"


def test_undo__needs_the_permission_of_the_action(client_with: Any) -> None:
    client = client_with("reschedule_job")
    url = undo_url(act(client, "run_now", make_job("send", run_at=minutes_ago(-9))))
    User.objects.get().user_permissions.remove(Permission.objects.get(codename="reschedule_job"))
    assert client.post(url).status_code == 403


def test_undo__is_not_offered_for_too_many_jobs(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "MAX_UNDONE", 2)
    ids = [make_job("send", run_at=minutes_ago(-9)) for _ in range(3)]
    assert messages(act(admin_page, "run_now", *ids)) == [
        f"3 jobs will run now. {' '.join(f'#{each}' for each in ids)}"
    ]
    assert execute("select count(*) from {schema}._private_action_steps") == [(0,)]
