"""Actions on schedules from the list."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.utils import timezone

from django_graphile_worker import task
from django_graphile_worker.models import Job, Schedule
from django_graphile_worker.registry import tasks
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, fields, log_entries, messages, text
from tests.support.factories import make_failed_job
from tests.support.operating import execute
from tests.support.schedule_rows import make_run, make_schedule

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_tasks() -> Iterator[None]:
    """Two tasks that people may schedule, and one that they may not."""
    with tasks.isolated():
        for name in ("billing", "mailing"):
            task(name, schedulable=True)(lambda payload: None)
        task("closed")(lambda payload: None)
        yield


def act(client: Client, action: str, *ids: int, **data: Any) -> Any:
    """Take an action for the selected schedules."""
    sent = {"action": action, "_selected_action": ids, "index": "0", **data}
    return client.post(pages.SCHEDULES, sent, follow=True)


def act_on_all(client: Client, action: str, query: str = "", **data: Any) -> Any:
    """Take an action for all that match."""
    sent = {"action": action, "select_across": "1", "index": "0", **data}
    return client.post(f"{pages.SCHEDULES}?{query}", sent, follow=True)


def press(client: Client, action: str, schedule_id: int, **data: Any) -> Any:
    """Press the button of a row."""
    return client.post(pages.SCHEDULES, {"row": f"{action} schedule {schedule_id}", **data}, follow=True)


def allow(client: Client, name: str) -> None:
    """Give the user of a client the permission to schedule a task."""
    user = User.objects.get(pk=client.session["_auth_user_id"])
    content_type = ContentType.objects.get_for_model(Schedule)
    permission, _ = Permission.objects.get_or_create(
        content_type=content_type, codename=f"schedule:{name}", defaults={"name": name}
    )
    user.user_permissions.add(permission)


def snapshot() -> list[Any]:
    return [*Schedule.objects.order_by("pk").values(), Job.objects.count(), *log_entries()]


class TestOneSchedule:
    def test_run_now__adds_its_job_and_notes_who_asked(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing", payload={"tenant": 7})
        response = press(admin_page, "run_now", schedule)
        job = Job.objects.get()
        assert messages(response) == [f"Added billing #{job.pk}."]
        assert f'<a href="{pages.job_url(job.pk)}">' in body(response)
        assert job.payload["tenant"] == 7
        assert job.payload["_cron"]["backfilled"] is False
        assert log_entries() == [("nightly", f"Run now, as job #{job.pk}.")]
        assert "run now by root" in text(response)
        assert "Waiting" in text(response)

    def test_pause__asks_until_when(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        asked = press(admin_page, "pause", schedule)
        assert "Pause nightly?" in text(asked)
        assert Schedule.objects.get().paused_until is None
        sent = {**fields(asked), "length": "hour", "until": ""}
        response = admin_page.post(pages.SCHEDULES, sent, follow=True)
        found = Schedule.objects.get()
        assert found.paused_until is not None
        assert abs(found.paused_until - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)
        assert found.changed_by == "root"
        assert messages(response) == ["Paused nightly."]
        assert "paused ends in" in text(response)
        assert log_entries()[0][1].startswith("Paused until ")

    @pytest.mark.parametrize(
        ("sent", "error"),
        [
            ({"length": "at", "until": ""}, "Enter the time at which the pause ends."),
            ({"length": "at", "until": "2020-01-01T00:00"}, "Enter a time in the future."),
            ({"length": "never"}, "Select a valid choice."),
        ],
    )
    def test_pause__explains_a_wrong_end(self, admin_page: Client, sent: dict[str, str], error: str) -> None:
        schedule = make_schedule("nightly", "billing")
        response = press(admin_page, "pause", schedule, confirmed="1", **sent)
        assert error in text(response)
        assert Schedule.objects.get().paused_until is None

    def test_pause_without_an_end__lasts_until_it_is_resumed(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        press(admin_page, "pause", schedule, confirmed="1", length="resumed")
        assert Schedule.objects.get().is_paused_forever
        (row,) = [row for row in pages.rows(admin_page.get(pages.SCHEDULES)) if row.name == "nightly"]
        assert [(badge.text, badge.note) for badge in row.badges] == [("paused", "")]
        assert row.next_times == ()
        assert [button.label for button in (*row.buttons, *row.menu)][:2] == ["Resume", "Run now"]
        response = press(admin_page, "resume", schedule)
        assert messages(response) == ["Resumed nightly."]
        assert Schedule.objects.get().paused_until is None

    def test_pause_and_resume__are_events(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        for action, sent in (("pause", {"length": "resumed"}), ("resume", {}), ("pause", {"length": "hour"})):
            press(admin_page, action, schedule, confirmed="1", **sent)
        found = execute(
            "select kind, subject, details ->> 'by', details ? 'until' from {schema}._private_events order by id"
        )
        assert found == [
            ("schedule_paused", "nightly", "root", False),
            ("schedule_resumed", "nightly", "root", False),
            ("schedule_paused", "nightly", "root", True),
        ]

    def test_disable_and_enable(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        press(admin_page, "disable", schedule)
        assert not Schedule.objects.get().is_enabled
        again = press(admin_page, "disable", schedule)
        assert messages(again) == ["Nothing was changed. 1 schedule is in this state already."]
        press(admin_page, "enable", schedule)
        assert Schedule.objects.get().is_enabled
        assert [message for _, message in log_entries()] == ["Disabled.", "Enabled."]

    def test_duplicate__opens_a_disabled_copy(self, admin_page: Client) -> None:
        schedule = make_schedule("n" * 200, "billing", payload={"a": 1}, cron="5 4 * * *", time_zone="Europe/Berlin")
        response = press(admin_page, "duplicate", schedule)
        first, second = Schedule.objects.order_by("pk")
        assert second.name == "n" * 193 + " (copy)"
        assert (second.payload, second.cron, second.time_zone) == (first.payload, first.cron, first.time_zone)
        assert (first.is_enabled, second.is_enabled) == (True, False)
        assert response.request["PATH_INFO"] == f"{pages.SCHEDULES}{second.pk}/change/"
        press(admin_page, "duplicate", schedule)
        assert Schedule.objects.filter(name__endswith="(copy 2)").count() == 1
        assert log_entries()[1][1] == "Added as a copy of " + "n" * 200 + "."

    def test_delete__asks_first(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        asked = press(admin_page, "delete_selected", schedule)
        assert "Delete nightly?" in text(asked)
        assert Schedule.objects.exists()
        response = admin_page.post(pages.SCHEDULES, fields(asked), follow=True)
        assert messages(response) == ["Deleted nightly."]
        assert not Schedule.objects.exists()
        assert log_entries() == [("nightly", "Deleted.")]

    @pytest.mark.parametrize("column", ["cron", "time_zone"])
    def test_run_now__of_a_schedule_that_is_not_valid_tells_why(self, admin_page: Client, column: str) -> None:
        schedule = make_schedule("nightly", "billing", **{column: "nonsense"})
        response = press(admin_page, "run_now", schedule)
        assert response.status_code == 200
        assert "got 'nonsense'." in messages(response)[0]
        assert not Job.objects.exists()

    def test_what_is_gone__is_not_changed(self, admin_page: Client) -> None:
        response = press(admin_page, "run_now", 4711)
        assert messages(response) == ["Nothing was changed. Select the schedules and the action again."]
        assert messages(press(admin_page, "nonsense", 1)) == ["Select an action."]
        assert messages(act(admin_page, "nonsense", 1)) == ["No action selected."]

    def test_list__stays_what_it_was(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        sent = {"row": f"disable schedule {schedule}"}
        response = admin_page.post(f"{pages.SCHEDULES}?state=paused", sent, follow=True)
        assert response.request["QUERY_STRING"] == "state=paused"
        # A button is for its row, also if the list has it no longer.
        assert not Schedule.objects.get().is_enabled


class TestManySchedules:
    def test_selected__are_changed_after_a_confirmation(self, admin_page: Client) -> None:
        ids = [make_schedule(f"tenant {number}", "billing") for number in range(12)]
        asked = act(admin_page, "disable", *ids[:11])
        assert "Disable 11 schedules?" in text(asked)
        assert "and 1 more" in text(asked)
        assert Schedule.objects.filter(is_enabled=False).count() == 0
        response = act(admin_page, "disable", *ids[:11], confirmed="1")
        assert messages(response) == ["Disabled 11 schedules."]
        assert [*Schedule.objects.filter(is_enabled=True).values_list("pk", flat=True)] == ids[11:]
        assert len(log_entries()) == 11

    def test_all_that_match__are_changed(self, admin_page: Client) -> None:
        for number in range(60):
            make_schedule(f"tenant {number}", "billing" if number % 2 else "mailing")
        make_schedule("other", "billing", description="no match")
        response = act_on_all(admin_page, "pause", "q=tenant&task=billing", confirmed="1", length="day")
        assert messages(response) == ["Paused 30 schedules."]
        assert Schedule.objects.filter(paused_until__isnull=False).count() == 30
        assert not Schedule.objects.get(name="other").is_paused

    def test_run_now__is_not_for_all_that_match(self, admin_page: Client) -> None:
        make_schedule("one", "billing")
        make_schedule("two", "billing")
        response = act_on_all(admin_page, "run_now", confirmed="1")
        assert messages(response) == [
            "Nothing was changed. “Run now” is not for all that match: select the schedules one by one."
        ]
        assert not Job.objects.exists()

    def test_pause__leaves_out_what_is_disabled(self, admin_page: Client) -> None:
        ids = [make_schedule("on", "billing"), make_schedule("off", "billing", is_enabled=False)]
        assert "1 schedule is left out: it is disabled." in text(act(admin_page, "pause", *ids))
        response = act(admin_page, "pause", ids[1])
        assert messages(response) == ["Nothing was changed. 1 schedule is left out: it is disabled."]

    def test_all_that_fail__are_none_for_a_user_who_sees_some_jobs_only(
        self, admin_page: Client, settings: Any
    ) -> None:
        settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
        schedule, job = make_schedule("nightly", "billing"), make_failed_job("other", error="x")
        execute("update {schema}._private_schedules set last_job_id = %s where id = %s", [job, schedule])
        make_run(schedule, job_id=job)
        sent = {"action": "disable", "select_across": "1", "index": "0", "confirmed": "1"}
        admin_page.post("/restricted/graphile_worker/schedule/?state=failing", sent)
        assert Schedule.objects.get().is_enabled

    def test_many__share_an_entry_of_the_log(self, admin_page: Client) -> None:
        for number in range(101):
            make_schedule(f"tenant {number:03}", "billing")
        act_on_all(admin_page, "disable", confirmed="1")
        ((name, message),) = log_entries()
        assert name == "101 schedules"
        assert message.startswith("Disabled. Schedules: tenant 000, tenant 001,")


NEEDED = {
    "run_now": "run_schedule",
    "pause": "pause_schedule",
    "resume": "pause_schedule",
    "enable": "change_schedule",
    "disable": "change_schedule",
    "duplicate": "add_schedule",
    "delete_selected": "delete_schedule",
}
ALL = sorted({*NEEDED.values()})


class TestPermissions:
    @pytest.fixture
    def schedules(self) -> dict[str, int]:
        return {
            "run_now": make_schedule("a", "billing"),
            "pause": make_schedule("b", "billing"),
            "resume": make_schedule("c", "billing", paused_until="2999-01-01"),
            "enable": make_schedule("d", "billing", is_enabled=False),
            "disable": make_schedule("e", "billing"),
            "duplicate": make_schedule("f", "billing"),
            "delete_selected": make_schedule("g", "billing"),
        }

    def test_each_action__needs_that_of_the_model_and_that_of_the_task(
        self, client_with: MakeClient, schedules: dict[str, int]
    ) -> None:
        with_all_but = {each: client_with(*[name for name in ALL if name != each]) for each in ALL}
        without_task, of_other_task, complete = client_with(*ALL), client_with(*ALL), client_with(*ALL)
        allow(of_other_task, "mailing")
        for client in (*with_all_but.values(), complete):
            allow(client, "billing")
        for action, schedule in schedules.items():
            before = snapshot()
            for client in (with_all_but[NEEDED[action]], without_task, of_other_task):
                sent = {"confirmed": "1", "length": "hour"}
                assert press(client, action, schedule, **sent).status_code == 403, action
                # Without the permission of the model, the list does not have the action.
                act(client, action, schedule, **sent)
                act_on_all(client, action, **sent)
            assert snapshot() == before, action
            assert press(complete, action, schedule, confirmed="1", length="hour").status_code == 200
            assert snapshot() != before, action

    def test_buttons__are_those_that_the_user_may_press(
        self, client_with: MakeClient, schedules: dict[str, int]
    ) -> None:
        make_schedule("shut", "closed")
        client = client_with(*ALL)
        allow(client, "mailing")
        make_schedule("own", "mailing")
        rows = {row.name: row for row in pages.rows(client.get(pages.SCHEDULES))}
        assert [button.label for button in (*rows["own"].buttons, *rows["own"].menu)] == [
            "Run now", "Pause…", "Disable", "Duplicate", "Delete",
        ]  # fmt: skip
        for name in ("a", "c", "d", "shut"):
            assert (rows[name].buttons, rows[name].menu) == ([], []), name

    def test_selection__leaves_out_what_the_user_may_not_change(self, client_with: MakeClient) -> None:
        ids = [make_schedule("mine", "billing"), make_schedule("too", "billing"), make_schedule("not", "mailing")]
        client = client_with("change_schedule")
        allow(client, "billing")
        asked = act(client, "disable", *ids)
        assert "Disable 2 schedules?" in text(asked)
        assert "1 schedule is left out: it is in code, or you may not schedule its task." in text(asked)
        act(client, "disable", *ids, confirmed="1")
        assert [*Schedule.objects.filter(is_enabled=True).values_list("name", flat=True)] == ["not"]

    def test_superuser__can_only_stop_what_nobody_may_schedule(self, admin_page: Client) -> None:
        schedule = make_schedule("shut", "closed")
        before = snapshot()
        for action in ("run_now", "pause", "duplicate"):
            assert press(admin_page, action, schedule, confirmed="1", length="hour").status_code == 403
        assert snapshot() == before
        assert press(admin_page, "disable", schedule).status_code == 200
        assert press(admin_page, "enable", schedule).status_code == 403
        assert press(admin_page, "delete_selected", schedule, confirmed="1").status_code == 200
        assert not Schedule.objects.exists()

    def test_task_that_a_schedule_has_now__counts(self, client_with: MakeClient) -> None:
        schedule = make_schedule("moved", "billing")
        client = client_with(*ALL)
        allow(client, "billing")
        assert pages.rows(client.get(pages.SCHEDULES, {"q": "moved"}))[0].buttons
        execute("update {schema}._private_schedules set task = 'mailing' where id = %s", [schedule])
        assert press(client, "run_now", schedule).status_code == 403
        assert not Job.objects.exists()

    def test_recurring_tasks__open_the_list_without_schedules(self, client_with: MakeClient, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": "0 4 * * * closed ?id=of-code"}
        schedule = make_schedule("secret", "billing", description="secret")
        client = client_with("view_recurringtask", *ALL, views=())
        allow(client, "billing")
        User.objects.get(pk=client.session["_auth_user_id"]).user_permissions.remove(
            Permission.objects.get(codename="change_schedule")
        )
        page = client.get(pages.SCHEDULES)
        assert [row.name for row in pages.rows(page)] == ["count_orders", "of-code"]
        assert "secret" not in body(page)
        assert "billing" not in body(page)
        for path in ("change/", "history/"):
            assert client.get(f"{pages.SCHEDULES}{schedule}/{path}").status_code == 403
        assert press(client, "run_now", schedule).status_code == 403

    def test_changes__need_a_token(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly", "billing")
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get())
        assert strict.post(pages.SCHEDULES, {"row": f"disable schedule {schedule}"}).status_code == 403
        assert Schedule.objects.get().is_enabled


class TestItems:
    @pytest.fixture(autouse=True)
    def crontab(self, settings: Any) -> None:
        lines = "0 4 * * * closed ?id=plain\n0 5 * * * billing ?id=guarded"
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": lines}
        execute("insert into {schema}._private_known_crontabs values ('plain', now(), null), ('guarded', now(), null)")

    def press(self, client: Client, action: str, name: str) -> Any:
        return client.post(pages.SCHEDULES, {"row": f"{action} item {name}"}, follow=True)

    def test_pause_and_resume(self, admin_page: Client) -> None:
        assert messages(self.press(admin_page, "pause", "plain")) == ["Paused plain."]
        rows = {row.name: row for row in pages.rows(admin_page.get(pages.SCHEDULES))}
        assert [button.label for button in (*rows["plain"].buttons, *rows["plain"].menu)] == ["Resume", "Run now"]
        again = messages(self.press(admin_page, "pause", "plain"))
        assert again == ["Nothing was changed: plain is in this state already."]
        assert messages(self.press(admin_page, "resume", "plain")) == ["Resumed plain."]
        assert log_entries() == [("plain", "Paused."), ("plain", "Resumed.")]
        assert self.press(admin_page, "delete_selected", "plain").status_code == 404

    def test_permissions(self, client_with: MakeClient) -> None:
        views = ("view_recurringtask",)
        viewer, runner = client_with(views=views), client_with("run_recurringtask", views=views)
        pauser = client_with("pause_recurringtask", views=views)
        assert self.press(viewer, "run_now", "plain").status_code == 403
        assert self.press(runner, "pause", "plain").status_code == 403
        assert self.press(pauser, "run_now", "plain").status_code == 403
        # A task that is schedulable needs its own permission, too.
        assert self.press(runner, "run_now", "guarded").status_code == 403
        assert self.press(pauser, "pause", "guarded").status_code == 403
        assert not Job.objects.exists()
        assert self.press(runner, "run_now", "plain").status_code == 200
        assert self.press(pauser, "pause", "plain").status_code == 200
        allow(runner, "billing")
        assert self.press(runner, "run_now", "guarded").status_code == 200
        assert Job.objects.count() == 2
