"""Subclasses of ScheduleAdmin: what the documentation of Django says of ModelAdmin holds, or a check says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connection, models
from django.db.models.functions import Length
from django.test import Client
from django.urls import path

from django_graphile_worker.admin import ScheduleAdmin, register
from django_graphile_worker.models import Schedule
from tests.integration.admin.conftest import MakeClient
from tests.support.admin_pages import SCHEDULES as URL
from tests.support.admin_pages import body, fields, messages, rows, text
from tests.support.schedule_forms import ADD, form_values
from tests.support.schedule_rows import make_schedule

TASK = "refresh_search_index"
SECRET = {"password": "hunter2", "city": "Oslo"}
Extend = Callable[..., Any]


@pytest.fixture
def project(db: None) -> Iterator[Any]:
    """Two models of a project that refer to schedules, known to Django during a test."""

    class Note(models.Model):
        schedule = models.ForeignKey(Schedule, models.CASCADE, db_constraint=False)
        text = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"

        def __str__(self) -> str:
            return self.text

    class Contract(models.Model):
        schedule = models.ForeignKey(Schedule, models.PROTECT, db_constraint=False)

        class Meta:
            app_label = "shop"

        def __str__(self) -> str:
            return "contract of 2026"

    with connection.schema_editor() as editor:
        editor.create_model(Note)
        editor.create_model(Contract)
    yield {"note": Note, "contract": Contract}
    for name in ("note", "contract"):
        del apps.all_models["shop"][name]
        delattr(Schedule, f"{name}_set")
    apps.clear_cache()


@pytest.fixture
def extend(settings: Any) -> Extend:
    """Return a function that registers a subclass of ScheduleAdmin, with these attributes, on a site of its own."""

    def make(others: tuple[Any, ...] = (), /, **attributes: Any) -> Any:
        site = admin.AdminSite()
        register(site)
        site.unregister(Schedule)
        site.register(Schedule, type("ShopScheduleAdmin", (ScheduleAdmin,), {"__module__": __name__, **attributes}))
        for model, options in others:
            site.register(model, type("OtherAdmin", (admin.ModelAdmin,), options))
        settings.ROOT_URLCONF = (path("admin/", site.urls),)
        return site._registry[Schedule]

    return make


@pytest.fixture
def schedule(db: None) -> Schedule:
    return Schedule.objects.get(pk=make_schedule("nightly", TASK, payload=SECRET, job_key="acme"))


def page_of(schedule: Schedule, name: str = "change") -> str:
    return f"{URL}{schedule.pk}/{name}/"


def sent(schedule: Schedule | None = None, /, **values: Any) -> dict[str, Any]:
    """Return what the form sends."""
    known = {} if schedule is None else {"revision": schedule.revision}
    return form_values(**{"name": "nightly", "task": TASK, "payload_of": TASK, **known, **values})


def press(client: Client, action: str, schedule: Schedule, **data: Any) -> Any:
    return client.post(URL, {"row": f"{action} schedule {schedule.pk}", **data}, follow=True)


def ids_of_checks(page: ScheduleAdmin) -> list[str | None]:
    return [message.id for message in page.check()]


class TestInlines:
    """Rows of another model, in the form of the schedule."""

    def rows(self, *notes: tuple[str, str], stored: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = {"note_set-TOTAL_FORMS": len(notes), "note_set-INITIAL_FORMS": stored}
        for number, (pk, note) in enumerate(notes):
            found |= {f"note_set-{number}-id": pk, f"note_set-{number}-text": note}
        return found

    @pytest.fixture(autouse=True)
    def with_inline(self, extend: Extend, project: Any) -> Any:
        self.model = project["note"]
        extend(inlines=[type("NoteInline", (admin.TabularInline,), {"model": self.model})])

    def test_rows__are_shown_with_their_scripts(self, admin_page: Client, schedule: Schedule) -> None:
        self.model.objects.create(schedule=schedule, text="ask Maria")
        shown = body(admin_page.get(page_of(schedule)))
        assert 'name="note_set-TOTAL_FORMS" value="4"' in shown
        assert 'value="ask Maria"' in shown
        assert "admin/js/inlines" in shown

    def test_rows__are_added_and_changed(self, admin_page: Client, schedule: Schedule) -> None:
        assert admin_page.post(page_of(schedule), sent(schedule, **self.rows(("", "one")))).status_code == 302
        note = self.model.objects.get(schedule=schedule)
        schedule.refresh_from_db()
        changed = sent(schedule, schedule=schedule.pk, **self.rows((note.pk, "two"), stored=1))
        changed["note_set-0-schedule"] = schedule.pk
        assert admin_page.post(page_of(schedule), changed).status_code == 302
        note.refresh_from_db()
        assert note.text == "two"
        assert "notes" in LogEntry.objects.latest("pk").get_change_message()

    def test_errors__are_shown(self, admin_page: Client, schedule: Schedule) -> None:
        page = admin_page.post(page_of(schedule), sent(schedule, **self.rows(("", "x" * 30))))
        assert "Please correct the errors below." in text(page)
        assert "at most 20 characters" in text(page)

    def test_rows__are_shown_to_users_that_may_not_change_them(self, admin_page: Client, schedule: Schedule) -> None:
        self.model.objects.create(schedule=schedule, text="ask Maria")
        Schedule.objects.update(is_from_code=True)
        shown = body(admin_page.get(page_of(schedule)))
        assert "ask Maria" in shown
        assert 'value="ask Maria"' not in shown


class TestDeletion:
    """The action and the page that delete, with the methods of ModelAdmin."""

    def test_action__calls_what_a_project_overrides(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        calls: list[str] = []
        extend(
            delete_queryset=lambda self, request, queryset: calls.append(f"delete {queryset.get().name}"),
            log_deletions=lambda self, request, queryset: calls.append(f"log {queryset[0].name}"),
        )
        press(admin_page, "delete_selected", schedule, confirmed="1")
        assert calls == ["log nightly", "delete nightly"]
        assert Schedule.objects.exists()

    def test_confirmation__lists_related_objects(
        self, admin_page: Client, extend: Extend, project: Any, schedule: Schedule
    ) -> None:
        extend()
        project["note"].objects.create(schedule=schedule, text="ask Maria")
        assert "Note: ask Maria" in text(press(admin_page, "delete_selected", schedule))
        press(admin_page, "delete_selected", schedule, confirmed="1")
        assert not Schedule.objects.exists()
        assert not project["note"].objects.exists()

    def test_protected_objects__prevent_it(
        self, admin_page: Client, extend: Extend, project: Any, schedule: Schedule
    ) -> None:
        extend()
        project["contract"].objects.create(schedule=schedule)
        for data in ({}, {"confirmed": "1"}):
            page = press(admin_page, "delete_selected", schedule, **data)
            assert "contract of 2026" in text(page)
            assert "gw-danger-solid" not in body(page)
        assert Schedule.objects.exists()

    def test_permissions_of_related_objects__are_needed(
        self, client_with: MakeClient, extend: Extend, project: Any, schedule: Schedule
    ) -> None:
        extend(((project["note"], {}),))
        project["note"].objects.create(schedule=schedule, text="ask Maria")
        client = client_with("delete_schedule", f"schedule:{TASK}")
        page = press(client, "delete_selected", schedule, confirmed="1")
        assert "you may not delete what belongs to it: note" in text(page)
        assert Schedule.objects.exists()

    def test_page__is_that_of_django(self, admin_page: Client, extend: Extend, schedule: Schedule) -> None:
        calls: list[str] = []

        def delete_model(self: ScheduleAdmin, request: Any, obj: Schedule) -> None:
            calls.append(obj.name)
            ScheduleAdmin.delete_model(self, request, obj)

        extend(delete_model=delete_model)
        assert "Are you sure" in text(admin_page.get(page_of(schedule, "delete")))
        assert admin_page.post(page_of(schedule, "delete"), {"post": "yes"}).status_code == 302
        assert calls == ["nightly"]
        assert not Schedule.objects.exists()

    def test_page__needs_the_permission(self, client_with: MakeClient, extend: Extend, schedule: Schedule) -> None:
        extend()
        for client in (client_with("delete_schedule"), client_with(f"schedule:{TASK}")):
            assert client.get(page_of(schedule, "delete")).status_code == 403
            assert client.post(page_of(schedule, "delete"), {"post": "yes"}).status_code == 403


class TestActions:
    def test_action_that_is_left_out__has_no_buttons(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        def get_actions(self: ScheduleAdmin, request: Any) -> dict[str, Any]:
            found = ScheduleAdmin.get_actions(self, request)
            return {name: each for name, each in found.items() if name not in ("delete_selected", "run_now")}

        extend(get_actions=get_actions)
        (row,) = [row for row in rows(admin_page.get(URL)) if row.name == "nightly"]
        assert {button.value.split()[0] for button in (*row.buttons, *row.menu)} == {"pause", "disable", "duplicate"}
        for action in ("delete_selected", "run_now"):
            assert press(admin_page, action, schedule, confirmed="1").status_code == 403
        assert Schedule.objects.exists()

    def test_action_that_is_replaced__is_that_of_the_button(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        def run_now(self: ScheduleAdmin, request: Any, queryset: Any) -> None:
            self.message_user(request, f"Ran {queryset.get().job_key}")

        extend(run_now=run_now)
        assert messages(press(admin_page, "run_now", schedule)) == ["Ran acme"]

    @pytest.mark.parametrize("name", ["run", "pause_schedule", "view"])
    def test_permission_without_a_schedule__is_an_error(self, extend: Extend, name: str) -> None:
        page = extend(**{f"has_{name}_permission": lambda self, request: True})
        assert ids_of_checks(page) == ["graphile_worker.E027"]
        assert ids_of_checks(extend(**{f"has_{name}_permission": lambda self, request, obj=None: True})) == []


def test_history__needs_the_permission_to_view_the_schedule(
    admin_page: Client, extend: Extend, schedule: Schedule
) -> None:
    extend(has_view_permission=lambda self, request, obj=None: obj is None, has_change_permission=no)
    assert admin_page.get(page_of(schedule, "history")).status_code == 403
    extend()
    assert admin_page.get(page_of(schedule, "history")).status_code == 200


def no(self: ScheduleAdmin, request: Any, obj: Any = None) -> bool:
    return False


class TestColumns:
    def test_payload__is_redacted_and_needs_its_permission(
        self, client_with: MakeClient, extend: Extend, schedule: Schedule
    ) -> None:
        extend(list_display=("schedule", "payload"))
        shown = text(client_with("view_payload").get(URL))
        assert '"city": "Oslo"' in shown
        assert "hunter2" not in shown
        shown = body(client_with().get(URL))
        assert "Oslo" not in shown
        assert "column-redacted_payload" not in shown

    def test_columns_of_the_project__are_empty_for_items(
        self, admin_page: Client, extend: Extend, schedule: Schedule, project: Any
    ) -> None:
        seen: list[Any] = []

        def get_queryset(self: Any, request: Any) -> Any:
            return ScheduleAdmin.get_queryset(self, request).annotate(gw_length=Length("name"))

        def length(self: Any, schedule: Any) -> str:
            seen.append(schedule.pk)
            return f"length {schedule.gw_length}"

        extend(
            list_display=("schedule", "length", "notes", "priority"),
            list_display_links=("notes",),
            get_queryset=get_queryset,
            length=length,
            notes=lambda self, schedule: f"notes {schedule.note_set.count()}",
        )
        page = admin_page.get(URL)
        assert [row.name for row in rows(page)] == ["count_orders", "nightly"]
        assert "length 7 notes 0" in text(page)
        assert seen == [schedule.pk]
        assert "/None/" not in body(page)

    def test_links__are_checked_by_django(self, extend: Extend) -> None:
        assert ids_of_checks(extend(list_display_links=("nope",))) == ["admin.E111"]

    def test_fields_to_edit_in_the_list__have_no_effect_and_say_so(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        page = extend(list_display=(*ScheduleAdmin.list_display, "is_enabled"), list_editable=("is_enabled",))
        assert ids_of_checks(page) == ["graphile_worker.W014"]
        assert admin_page.get(URL).status_code == 200


def test_items__are_hidden_from_users_for_whom_the_queryset_is_restricted(
    client_with: MakeClient, extend: Extend, schedule: Schedule
) -> None:
    client, with_items = client_with("run_recurringtask"), client_with("view_recurringtask")
    extend()
    assert [row.name for row in rows(client.get(URL))] == ["count_orders", "nightly"]
    extend(get_queryset=lambda self, request: ScheduleAdmin.get_queryset(self, request).filter(job_key="acme"))
    assert [row.name for row in rows(client.get(URL))] == ["nightly"]
    assert "count_orders" not in body(client.get(URL))
    assert client.post(URL, {"row": "run_now item count_orders"}).status_code == 403
    assert [row.name for row in rows(with_items.get(URL))] == ["count_orders", "nightly"]


class TestForm:
    def test_payload_that_is_read_only__stays_and_is_shown_redacted(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        extend(readonly_fields=("payload",))
        shown = body(admin_page.get(page_of(schedule)))
        assert "Oslo" in shown
        assert "hunter2" not in shown
        assert 'name="payload-json"' not in shown
        values = sent(schedule, description="new", **{"payload-json": '{"city": "Bergen"}'})
        assert admin_page.post(page_of(schedule), values).status_code == 302
        schedule.refresh_from_db()
        assert (schedule.payload, schedule.description) == (SECRET, "new")

    def test_payload_in_the_fieldsets__is_that_of_the_page(
        self, client_with: MakeClient, extend: Extend, schedule: Schedule
    ) -> None:
        extend(fieldsets=((None, {"fields": ("name", ("task", "payload"), "kind", "cron", "time_zone")}),))
        permissions = ("change_schedule", f"schedule:{TASK}")
        shown = body(client_with(*permissions, "view_payload").get(page_of(schedule)))
        assert shown.count('name="payload-json"') == 1
        assert "hunter2" not in body(client_with(*permissions).get(page_of(schedule)))

    def test_task_that_is_read_only__keeps_the_payload_editable(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        extend(readonly_fields=("task",))
        shown = body(admin_page.get(page_of(schedule)))
        assert 'name="payload_of"' in shown
        assert "Task:" in shown
        values = sent(schedule, **{"payload-json": '{"city": "Bergen"}'})
        assert admin_page.post(page_of(schedule), values).status_code == 302
        schedule.refresh_from_db()
        assert schedule.payload == {"city": "Bergen"}
        del values["payload_of"]
        page = admin_page.post(page_of(schedule), values | {"revision": schedule.revision})
        assert "The payload of another task has other fields" in text(page)

    def test_form_without_fieldsets__has_all_fields(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        extend(fieldsets=None)
        shown = body(admin_page.get(page_of(schedule)))
        assert shown.count('name="revision"') == 1
        assert admin_page.post(page_of(schedule), sent(schedule, description="new")).status_code == 302
        assert admin_page.post(ADD, sent(name="second")).status_code == 302

    def test_fields__are_the_fields_of_the_page(self, admin_page: Client, extend: Extend, schedule: Schedule) -> None:
        extend(fieldsets=None, fields=("name", "description"))
        values = sent(schedule, description="new", cron="@daily", job_key="other")
        assert admin_page.post(page_of(schedule), values).status_code == 302
        schedule.refresh_from_db()
        assert (schedule.description, schedule.cron, schedule.job_key) == ("new", "0 * * * *", "acme")
        assert schedule.payload == SECRET

    def test_fieldsets_without_a_kind__keep_the_kind(self, admin_page: Client, extend: Extend) -> None:
        extend(fieldsets=((None, {"fields": ("name", "task", "cron", "time_zone")}),))
        assert admin_page.post(ADD, sent(cron="@daily", kind="")).status_code == 302
        assert Schedule.objects.get().cron == "@daily"

    def test_errors_of_fields_that_are_not_on_the_page__are_at_its_top(
        self, admin_page: Client, extend: Extend
    ) -> None:
        extend(fieldsets=((None, {"fields": ("description",)}),))
        assert "Cron line: This field is required." in text(admin_page.post(ADD, sent()))
        extend(fieldsets=((None, {"fields": ("cron",)}),))
        assert "Name: Expected" in text(admin_page.post(ADD, sent()))

    def test_fieldset__has_its_description_and_can_be_collapsed(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        own = ("Shop", {"fields": ("job_key",), "description": "Ask <b>Maria</b>.", "classes": ("collapse",)})
        extend(fieldsets=(*ScheduleAdmin.fieldsets[:3], own))
        shown = body(admin_page.get(page_of(schedule)))
        assert "Ask <b>Maria</b>." in shown
        assert '<details><summary><h2 id="gw-fieldset-4">Shop</h2></summary>' in shown

    def test_viewer__sees_the_fields_of_the_project(
        self, client_with: MakeClient, extend: Extend, schedule: Schedule
    ) -> None:
        extend(
            readonly_fields=("tenant",),
            fieldsets=((None, {"fields": ("name", "task", "kind", "cron")}), ("Shop", {"fields": ("tenant",)})),
            tenant=admin.display(description="tenant")(lambda self, schedule: f"tenant {schedule.job_key}"),
        )
        shown = text(client_with().get(page_of(schedule)))
        assert "Tenant tenant acme" in shown
        assert "Job key" not in shown
        assert "Runs by" not in shown

    def test_media__is_on_the_list_and_on_the_form(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        class Colored(forms.TextInput):
            class Media:
                js = ("shop/colored.js",)

        extend(
            Media=type("Media", (), {"js": ("shop/admin.js",), "css": {"all": ("shop/admin.css",)}}),
            formfield_overrides={models.CharField: {"widget": Colored}},
        )
        for url, names in ((URL, ("admin.js", "admin.css")), (ADD, ("admin.js", "admin.css", "colored.js"))):
            shown = body(admin_page.get(url))
            assert all(f"shop/{name}" in shown for name in names)
        assert "jquery.init.js" in shown

    def test_prepopulated_fields_and_buttons__are_those_of_django(
        self, admin_page: Client, extend: Extend, schedule: Schedule
    ) -> None:
        extend(prepopulated_fields={"job_key": ("name",)}, save_as=True, save_on_top=True)
        shown = body(admin_page.get(page_of(schedule)))
        assert "&quot;id&quot;: &quot;#id_job_key&quot;" in shown
        assert shown.count('name="_saveasnew"') == shown.count('name="_continue"') == 2
        values = sent(schedule, name="copy", _saveasnew="1")
        page = admin_page.post(page_of(schedule), values)
        copy = Schedule.objects.get(name="copy")
        assert page.headers["Location"] == page_of(copy)
        assert Schedule.objects.filter(name="nightly").exists()


class TestPopups:
    """The list and the form, opened from the form of a model that refers to a schedule."""

    @pytest.fixture(autouse=True)
    def with_notes(self, extend: Extend, project: Any) -> None:
        extend(((project["note"], {"raw_id_fields": ("schedule",)}),))

    def test_list__has_links_that_give_the_schedule_back(self, admin_page: Client, schedule: Schedule) -> None:
        page = admin_page.get(URL, {"_popup": "1", "_to_field": "id"})
        assert [row.name for row in rows(page)] == ["nightly"]
        shown = body(page)
        assert f'data-popup-opener="{schedule.pk}">nightly</a>' in shown
        assert "RelatedObjectLookups.js" in shown
        assert 'class="gw-nav"' not in shown
        assert 'name="row"' not in shown
        assert f'href="{ADD}?_popup=1&amp;_to_field=id"' in shown
        assert fields(page)["_popup"] == "1"

    def test_form__closes_when_it_is_saved(self, admin_page: Client, schedule: Schedule) -> None:
        page = admin_page.get(ADD, {"_popup": "1"})
        assert fields(page)["_popup"] == "1"
        assert 'name="_continue"' not in body(page)
        assert "&quot;obj&quot;: &quot;second&quot;" in body(admin_page.post(ADD, sent(name="second", _popup="1")))
        changed = admin_page.post(page_of(schedule), sent(schedule, name="first", _popup="1"))
        assert "&quot;new_value&quot;" in body(changed)

    def test_autocompletion__finds_schedules(
        self, admin_page: Client, extend: Extend, project: Any, schedule: Schedule
    ) -> None:
        extend(((project["note"], {"autocomplete_fields": ("schedule",)}),))
        asked = {"term": "night", "app_label": "shop", "model_name": "note", "field_name": "schedule"}
        answer = admin_page.get("/admin/autocomplete/", asked).json()
        assert answer["results"] == [{"id": str(schedule.pk), "text": "nightly"}]
