"""The pages that add and change a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.test import Client

from django_graphile_worker.admin.schedules.schedule_form import ScheduleForm
from django_graphile_worker.models import Schedule, changed_by
from tests.support.admin_pages import body, log_entries, messages, text
from tests.support.operating import execute
from tests.support.schedule_forms import (
    ADD,
    MODEL_PERMISSIONS,
    SCHEDULES,
    change_url,
    errors,
    form_values,
    make_schedule,
)

pytestmark = pytest.mark.django_db

TYPED = {"task": "reports:send", "payload_of": "reports:send", "payload_as": "fields"}


class TestAdd:
    def test_saves_all_that_the_form_has(self, client_of: Any) -> None:
        client = client_of("reports:send", name="maria")
        response = client.add(
            **TYPED,
            description="For the board",
            starts_at="2030-01-01T00:00",
            ends_at="2031-01-01T00:00:30",
            missed="all",
            missed_within="2 days",
            overlap="skip",
            queue_name="slow",
            priority="5",
            max_attempts="3",
            job_key="nightly",
            **{"payload-month": "5", "payload-format": '"csv"', "payload-since": "2026-05-01", "payload-tags": '["a"]'},
        )
        assert response.status_code == 302, errors(response)
        schedule = Schedule.objects.get()
        assert schedule.payload == {"month": 5, "format": "csv", "since": "2026-05-01", "tags": ["a"]}
        assert (schedule.cron, schedule.interval, schedule.run_at) == ("0 9 * * 1-5", None, None)
        assert schedule.starts_at == datetime(2029, 12, 31, 23, tzinfo=UTC)
        assert schedule.ends_at == datetime(2030, 12, 31, 23, 0, 30, tzinfo=UTC)
        assert (schedule.missed, schedule.missed_within, schedule.overlap) == ("all", timedelta(days=2), "skip")
        options = (schedule.queue_name, schedule.priority, schedule.max_attempts, schedule.job_key)
        assert options == ("slow", 5, 3, "nightly")
        assert (schedule.description, schedule.changed_by, schedule.is_enabled) == ("For the board", "maria", True)
        assert log_entries() == [("nightly", "Added in the admin.")]

    def test_says_what_it_saved(self, client_of: Any) -> None:
        response = client_of("reports:plain").post(ADD, form_values(), follow=True)
        assert messages(response) == ["Saved nightly: Every weekday at 09:00 (Europe/Berlin)."]
        assert response.redirect_chain == [(SCHEDULES, 302)]

    def test_a_mistake_is_at_its_field(self, client_of: Any) -> None:
        page = client_of("reports:plain").add(cron="0 25 * * *", **{"payload-json": "[1]"})
        assert list(errors(page)) == ["cron", "payload-json"]
        assert "Cron line column 3: expected an hour from 0 to 23, got &#x27;25&#x27;." in body(page)
        assert "Enter a JSON object" in body(page)
        assert not Schedule.objects.exists()

    def test_a_name_is_taken_once(self, client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        make_schedule()
        client, expected = client_of("reports:plain"), "Another schedule has this name."
        assert errors(client.add()) == {"name": [expected]}

        checks = iter([lambda form: "nightly", ScheduleForm.clean_name])
        # Another user commits the name after the form was checked.
        monkeypatch.setattr(ScheduleForm, "clean_name", lambda form: next(checks)(form))
        assert errors(client.add()) == {"name": [expected]}
        assert Schedule.objects.count() == 1

    def test_offers_the_tasks_that_the_user_may_schedule(self, client_of: Any) -> None:
        page = client_of("reports:send").get(ADD)
        choices = [value for value, _label in page.context["form"].fields["task"].choices]
        assert choices == ["", "reports:send"]

    def test_says_that_there_is_no_task(self, client_of: Any) -> None:
        assert "There is no task that you may schedule" in text(client_of().get(ADD))

    @pytest.mark.parametrize("name", ["reports:secret", "internal:cleanup", "unknown", ""])
    def test_refuses_any_other_task(self, client_of: Any, name: str) -> None:
        response = client_of("reports:plain").add(task=name, payload_of=name)
        assert "task" in errors(response)
        assert not Schedule.objects.exists()

    def test_a_superuser_cannot_schedule_what_is_not_schedulable(self, admin_page: Client, client_of: Any) -> None:
        response = admin_page.post(ADD, form_values(task="internal:cleanup", payload_of="internal:cleanup"))
        assert "schedulable=True" in errors(response)["task"][0]
        assert not Schedule.objects.exists()

    def test_needs_the_permission_to_add(self, client_of: Any) -> None:
        client = client_of("reports:plain", permissions=("view_schedule", "change_schedule"))
        assert (client.get(ADD).status_code, client.add().status_code) == (403, 403)
        assert not Schedule.objects.exists()


class TestWithoutScripts:
    def test_a_button_shows_the_fields_of_the_task_and_keeps_what_was_typed(self, client_of: Any) -> None:
        client = client_of("reports:send", "reports:plain")
        page = client.add(task="reports:send", describe="1", cron="not yet")
        assert list(page.context["form"].payload_form.fields) == ["month", "format", "since", "tags", "api_token"]
        assert "Send the report of a month." in text(page)
        assert 'value="not yet"' in body(page)
        assert errors(page) == {}

    def test_a_button_shows_the_next_times_and_saves_nothing(self, client_of: Any) -> None:
        page = client_of("reports:plain").add(preview="1")
        assert "Every weekday at 09:00 (Europe/Berlin)" in text(page)
        assert len(page.context["preview"].times) == 5
        assert not Schedule.objects.exists()

    def test_another_task_is_not_saved_with_the_fields_of_the_former(self, client_of: Any) -> None:
        client = client_of("reports:send", "reports:plain")
        page = client.add(task="reports:plain", payload_of="reports:send", payload_as="fields")
        assert errors(page) == {"task": ["The payload of another task has other fields: fill them in, then save."]}
        assert list(page.context["form"].payload_form.fields) == ["json"]
        assert not Schedule.objects.exists()

    def test_buttons_switch_between_fields_and_json(self, client_of: Any) -> None:
        client = client_of("reports:send")
        page = client.add(**TYPED, switch="json", **{"payload-month": "5"})
        assert page.context["form"].payload_form.initial == {"json": '{\n  "month": 5\n}'}
        as_json = {**TYPED, "payload_as": "json"}
        page = client.add(**as_json, switch="fields", **{"payload-json": '{"month": 6, "format": "csv"}'})
        assert page.context["form"].payload_form.initial == {"month": 6, "format": '"csv"'}
        page = client.add(**as_json, switch="fields", **{"payload-json": '{"month": 6, "other": 1}'})
        assert page.context["form"].payload_form.is_json
        assert "The fields of the task cannot show this payload" in text(page)


class TestChange:
    def test_shows_the_values(self, client_of: Any) -> None:
        schedule = make_schedule(task="reports:send", payload={"month": 5, "api_token": "hunter2"}, missed="once")
        page = client_of("reports:send").get(change_url(schedule))
        form = page.context["form"]
        assert {name: form[name].value() for name in ("name", "kind", "cron", "time_zone", "missed", "revision")} == {
            "name": "nightly", "kind": "cron", "cron": "0 9 * * 1-5", "time_zone": "Europe/Berlin", "missed": "once",
            "revision": 0,
        }  # fmt: skip
        assert page.context["form"].payload_form.initial == {"month": 5, "api_token": "hunter2"}
        assert len(page.context["preview"].times) == 5

    def test_saves_what_was_changed(self, client_of: Any) -> None:
        schedule = make_schedule()
        client = client_of("reports:plain", name="maria")
        response = client.change(schedule, cron="@hourly", _continue="1")
        assert response.url == change_url(schedule)
        changed = Schedule.objects.get()
        assert (changed.cron, changed.changed_by, changed.revision) == ("@hourly", "maria", 1)
        assert log_entries() == [("nightly", "Changed: cron line.")]

    def test_saves_nothing_if_nothing_was_changed(self, client_of: Any) -> None:
        stored = {
            "interval": timedelta(seconds=90, microseconds=5),
            "cron": None,
            # The second of two half past two, with fractions of a second.
            "starts_at": datetime(2030, 10, 27, 1, 30, 0, 123, tzinfo=UTC),
            "payload": {"month": 5, "tags": ["ü", 1]},
            "task": "reports:plain",
        }
        schedule = make_schedule(**stored)
        client = client_of("reports:plain")
        page = client.get(change_url(schedule))
        sent = {
            each.html_name: each.value()
            for form in (page.context["form"], page.context["form"].payload_form)
            for each in form
        }
        values = {name: value for name, value in sent.items() if value is not None}
        assert values["starts_at"].isoformat() == "2030-10-27T02:30:00"
        values |= {"starts_at": "2030-10-27T02:30:00", "payload_of": "reports:plain", "payload_as": "json"}
        assert client.post(change_url(schedule), values).status_code == 302
        changed = Schedule.objects.get()
        assert {name: getattr(changed, name) for name in stored} == stored
        assert (changed.revision, log_entries()) == (0, [])

    def test_a_time_that_has_passed_can_stay(self, client_of: Any) -> None:
        passed = datetime(2020, 5, 1, 7, tzinfo=UTC)
        schedule = make_schedule(cron=None, run_at=datetime(2090, 5, 1, 7, tzinfo=UTC))
        Schedule.objects.update(run_at=passed)
        schedule.refresh_from_db()
        values = {"kind": "run_at", "run_at": "2020-05-01T09:00:00", "description": "done"}
        assert client_of("reports:plain").change(schedule, **values).status_code == 302
        assert Schedule.objects.values_list("run_at", "description").get() == (passed, "done")

    def test_a_payload_that_fields_cannot_show_is_edited_as_json(self, client_of: Any) -> None:
        schedule = make_schedule(task="reports:send", payload={"month": 5, "more": True})
        page = client_of("reports:send").get(change_url(schedule))
        assert page.context["form"].payload_form.is_json
        assert "Edit as fields" in text(page)

    def test_next_times_of_an_interval_count_from_its_anchor(self, client_of: Any) -> None:
        schedule = make_schedule(cron=None, interval=timedelta(days=7))
        page = client_of("reports:plain").get(change_url(schedule))
        expected = schedule.next_times(1)[0]
        assert expected.isoformat(timespec="seconds")[:16] in page.context["preview"].times[0].relative

    def test_says_that_it_is_paused(self, client_of: Any) -> None:
        schedule, client = make_schedule(), client_of("reports:plain")
        Schedule.objects.update(paused_until=datetime(2090, 5, 1, 7, tzinfo=UTC))
        assert "Paused until May 1, 2090, 7 a.m. UTC." in text(client.get(change_url(schedule)))
        Schedule.objects.update(paused_until=Schedule.FOREVER)
        assert "Paused." in text(client.get(change_url(schedule)))

    def test_next_times__are_those_after_a_pause(self, client_of: Any) -> None:
        schedule, client = make_schedule(), client_of("reports:plain")
        Schedule.objects.update(paused_until=datetime(2090, 5, 1, 7, tzinfo=UTC))
        preview = client.get(change_url(schedule)).context["preview"]
        assert [time.exact[:11] for time in preview.times[:2]] == ["May 1, 2090", "May 2, 2090"]
        assert "May 1, 2090" in client.check_form(schedule=schedule.pk, cron="0 12 * * *").json()["preview"]

    def test_next_times__of_a_schedule_that_is_disabled_or_paused_have_a_condition(self, client_of: Any) -> None:
        schedule, client = make_schedule(is_enabled=False), client_of("reports:plain")
        disabled, paused = (
            "It is disabled. Once it is enabled, it runs at:",
            "It is paused. Once it is resumed, it runs at:",
        )
        assert disabled in text(client.get(change_url(schedule)))
        assert disabled in client.check_form(is_enabled="").json()["preview"]
        assert disabled not in client.check_form().json()["preview"]
        Schedule.objects.update(is_enabled=True, paused_until=Schedule.FOREVER)
        page = client.get(change_url(schedule))
        assert paused in text(page)
        assert len(page.context["preview"].times) == 5

    @pytest.mark.parametrize("values", [{"cron": "garbage"}, {"time_zone": "Mars/Base"}])
    @pytest.mark.parametrize("task", ["reports:plain", "reports:secret"])
    def test_a_definition_that_is_not_valid_can_be_seen_and_corrected(
        self, client_of: Any, values: dict[str, str], task: str
    ) -> None:
        schedule, client = make_schedule(task=task), client_of("reports:plain")
        Schedule.objects.update(**values)
        page = client.get(change_url(schedule))
        assert page.context["preview"].error in text(page)
        assert page.context["preview"].error.endswith(f"got '{next(iter(values.values()))}'.")
        if task == "reports:plain":
            assert client.change(schedule, revision=(schedule.revision or 0) + 1).status_code == 302
            assert Schedule.objects.get().cron == "0 9 * * 1-5"

    def test_a_schedule_that_does_not_exist(self, client_of: Any) -> None:
        client = client_of("reports:plain")
        for object_id in ("1", "0", "x", "99999999999999999999"):
            page = client.get(f"{SCHEDULES}{object_id}/change/", follow=True)
            assert messages(page) == ["This schedule does not exist. It may have been deleted."]


class TestConflict:
    def test_a_stale_form_changes_nothing_and_says_what_was_changed_by_whom(self, client_of: Any) -> None:
        schedule = make_schedule(payload={"month": 5})
        with changed_by("maria"):
            Schedule.objects.update(cron="@daily", payload={"month": 6, "password": "hunter2"})
        client = client_of("reports:plain", name="otto")
        page = client.change(schedule, cron="@weekly")
        shown = text(page)
        assert "Nothing was saved: maria has changed this schedule in between" in shown
        assert "Cron line 0 9 * * 1-5 @daily" in shown
        assert '"month": 6, "password": "••••••"' in shown
        assert 'value="@weekly"' in body(page)
        assert Schedule.objects.get().cron == "@daily"
        # The form has the new revision: saving it again is a decision.
        again = (schedule.revision or 0) + 1
        assert page.context["form"]["revision"].value() == str(again)
        assert client.change(schedule, cron="@weekly", revision=again).status_code == 302
        assert Schedule.objects.get().cron == "@weekly"

    @pytest.mark.parametrize("revision", ["", "-1", "7"])
    def test_a_form_without_the_revision_changes_nothing(self, client_of: Any, revision: str) -> None:
        schedule = make_schedule()
        page = client_of("reports:plain").change(schedule, cron="@weekly", revision=revision)
        assert "Nothing was saved" in text(page)
        assert Schedule.objects.get().cron == "0 9 * * 1-5"

    def test_a_schedule_that_was_deleted_meanwhile(self, client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = make_schedule()
        client = client_of("reports:plain")
        _before_the_lock(monkeypatch, lambda: Schedule.objects.all().delete())
        page = client.change(schedule)
        assert page.status_code == 302
        assert not Schedule.objects.exists()

    def test_a_task_that_was_set_meanwhile_counts(self, client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = make_schedule()
        client = client_of("reports:plain")
        _before_the_lock(monkeypatch, lambda: Schedule.objects.update(task="reports:secret"))
        assert client.change(schedule, cron="@weekly", revision=(schedule.revision or 0) + 1).status_code == 403
        assert Schedule.objects.get().cron == "0 9 * * 1-5"


def _before_the_lock(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Have another user commit a change before a schedule is locked."""
    page = admin.site._registry[Schedule]
    lock = page.get_object

    def locked(*args: Any) -> Any:
        change()
        return lock(*args)

    monkeypatch.setattr(page, "get_object", locked)


class TestPermissions:
    def test_another_task_needs_its_permission(self, client_of: Any) -> None:
        schedule = make_schedule()
        page = client_of("reports:plain").change(schedule, task="reports:secret", payload_of="reports:secret")
        assert "You may not schedule" in errors(page)["task"][0]
        assert Schedule.objects.get().task == "reports:plain"

    @pytest.mark.parametrize("name", ["reports:secret", "internal:cleanup"])
    def test_a_schedule_of_another_task_is_read_only(self, client_of: Any, name: str) -> None:
        schedule = make_schedule(task=name, payload={"month": 5})
        client = client_of("reports:plain")
        page = client.get(change_url(schedule))
        assert "form" not in page.context
        assert "Every weekday at 09:00 (Europe/Berlin)" in text(page)
        assert client.change(schedule, task="reports:plain").status_code == 403
        assert Schedule.objects.get().task == name

    def test_a_task_that_is_not_schedulable_is_read_only_for_superusers(
        self, admin_page: Client, client_of: Any
    ) -> None:
        schedule = make_schedule(task="internal:cleanup")
        assert "its task is not schedulable" in text(admin_page.get(change_url(schedule)))
        values = form_values(revision=schedule.revision)
        assert admin_page.post(change_url(schedule), values).status_code == 403
        Schedule.objects.update(is_from_code=True)
        assert "This schedule is in code, with @task(every=…)" in text(admin_page.get(change_url(schedule)))

    def test_the_page_needs_the_permission_to_view(self, client_of: Any) -> None:
        schedule = make_schedule()
        assert client_of("reports:plain", permissions=()).get(change_url(schedule)).status_code == 403
        only_view = client_of("reports:plain", permissions=("view_schedule",))
        assert "form" not in only_view.get(change_url(schedule)).context
        assert only_view.change(schedule).status_code == 403

    def test_a_site_shows_some_schedules_to_some_users(self, client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        hidden, client = make_schedule(), client_of("reports:plain")
        page = admin.site._registry[Schedule]
        everything = page.get_queryset

        def restricted(request: Any) -> QuerySet[Schedule]:
            return everything(request).exclude(pk=hidden.pk)

        monkeypatch.setattr(page, "get_queryset", restricted)
        assert client.get(change_url(hidden)).status_code == 302
        assert client.change(hidden, cron="@weekly").status_code == 302
        assert Schedule.objects.get().cron == "0 9 * * 1-5"


class TestPayloadsOfOthers:
    def test_no_payload_is_shown_without_the_permission(self, client_of: Any) -> None:
        schedule = make_schedule(task="reports:send", payload={"month": 5, "api_token": "hunter2"})
        client = client_of("reports:send", "reports:plain", permissions=MODEL_PERMISSIONS)
        page = client.get(change_url(schedule))
        assert page.context["form"].payload_form is None
        for shown in (page, client.change(schedule, task="reports:send", preview="1"), _read_only(schedule, client_of)):
            assert "hunter2" not in body(shown)
            assert "api_token" not in body(shown)

    def test_the_payload_stays_and_so_does_the_task(self, client_of: Any) -> None:
        schedule = make_schedule(task="reports:send", payload={"month": 5})
        client = client_of("reports:send", "reports:plain", permissions=MODEL_PERMISSIONS)
        # Another task could show the payload to the user.
        page = client.change(schedule, task="reports:plain", payload_of="reports:plain")
        assert "task" in errors(page)
        sent = {**TYPED, "payload-month": "7", "cron": "@daily"}
        assert client.change(schedule, **sent).status_code == 302
        assert Schedule.objects.values_list("task", "payload", "cron").get() == ("reports:send", {"month": 5}, "@daily")

    def test_a_conflict_does_not_show_it(self, client_of: Any) -> None:
        schedule = make_schedule(payload={"month": 5})
        Schedule.objects.update(payload={"month": "hunter2"})
        page = client_of("reports:plain", permissions=MODEL_PERMISSIONS).change(schedule)
        assert "Payload Changed. You do not have permission to see payloads." in text(page)
        assert "hunter2" not in body(page)


def _read_only(schedule: Schedule, client_of: Any) -> Any:
    return client_of(permissions=("view_schedule",)).get(change_url(schedule))


def test_markup__is_text_everywhere(client_of: Any) -> None:
    nasty = "<script>alert(1)</script>"
    client = client_of("reports:plain")
    for values in ({"cron": nasty}, {"time_zone": nasty}, {"kind": "interval", "interval": nasty}, {"task": nasty}):
        assert nasty not in body(client.add(**values))
    saved = {"name": nasty, "description": nasty, "queue_name": nasty, "job_key": nasty}
    page = client.post(ADD, form_values(**saved, **{"payload-json": f'{{"{nasty}": "{nasty}"}}'}), follow=True)
    schedule = Schedule.objects.get(name=nasty)
    assert nasty not in body(page)
    assert nasty not in body(client.get(change_url(schedule)))
    assert nasty not in body(client_of(permissions=("view_schedule", "view_payload")).get(change_url(schedule)))


def test_pages__run_few_queries(client_of: Any, django_assert_max_num_queries: Any) -> None:
    schedule, client = make_schedule(), client_of("reports:plain")
    client.get(ADD)
    with django_assert_max_num_queries(20):
        client.get(change_url(schedule))


def test_a_change__keeps_the_times_that_are_due(client_of: Any) -> None:
    schedule = make_schedule(cron="* * * * *")
    execute("update {schema}._private_schedules set counts_from = now() - interval '1 hour', next_at = now()")
    assert client_of("reports:plain").change(schedule, cron="0 5 * * *").status_code == 302
    ((former,),) = execute("select former_times -> 0 ->> 'cron' from {schema}._private_schedules")
    assert former == "* * * * *"


def test_superuser__is_named_as_who_changed_it(admin_page: Client, client_of: Any) -> None:
    assert admin_page.post(ADD, form_values()).status_code == 302
    assert Schedule.objects.get().changed_by == User.objects.get().get_username()


def test_project_without_time_zones__saves_what_it_shows(client_of: Any, settings: Any) -> None:
    schedule = make_schedule(starts_at=datetime(2030, 7, 1, 7, tzinfo=UTC))
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Paris"
    client = client_of("reports:plain")
    page = client.get(change_url(schedule))
    assert page.context["form"]["starts_at"].value().isoformat() == "2030-07-01T09:00:00"
    assert len(page.context["preview"].times) == 5
    assert client.change(schedule, starts_at="2030-07-01T09:00:00").status_code == 302
    assert log_entries() == []
    assert client.change(schedule, starts_at="2030-07-01T10:00:00").status_code == 302
    assert log_entries() == [("nightly", "Changed: starts at.")]
    for order in ("1", "3", "-3", "4"):
        assert client.get(SCHEDULES, {"o": order}).status_code == 200
