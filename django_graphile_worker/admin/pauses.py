"""The page of pauses: what is paused, a form that pauses, and a button that resumes.

The notice about pauses on every page is ``pause_notice``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases, pause_notice
from django_graphile_worker.admin.audit import Message
from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput, time_zone_help
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError
from django_graphile_worker.job_options import MAX_INDEXED_FLAG_LENGTH
from django_graphile_worker.models import PausedWork
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection import known_names

REFUSED = (InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError)
MAX_REASON_LENGTH = 1_000
# How many tasks, and how many queues, the form suggests.
MAX_SUGGESTED = 200
# What the form offers in place of a time.
LENGTHS = {
    "15": timedelta(minutes=15),
    "60": timedelta(hours=1),
    "240": timedelta(hours=4),
    "1440": timedelta(days=1),
}
# By what is paused: a language may inflect the other words.
PAUSED = {
    PauseKind.QUEUE: gettext_lazy("Paused the queue %(name)s."),
    PauseKind.TASK: gettext_lazy("Paused the task %(name)s."),
    PauseKind.FLAG: gettext_lazy("Paused the flag %(name)s."),
}
RESUMED = {
    PauseKind.QUEUE: gettext_lazy("Resumed the queue %(name)s."),
    PauseKind.TASK: gettext_lazy("Resumed the task %(name)s."),
    PauseKind.FLAG: gettext_lazy("Resumed the flag %(name)s."),
}
NOT_PAUSED = {
    PauseKind.QUEUE: gettext_lazy("The queue %(name)s was not paused."),
    PauseKind.TASK: gettext_lazy("The task %(name)s was not paused."),
    PauseKind.FLAG: gettext_lazy("The flag %(name)s was not paused."),
}


class PauseForm(forms.Form):
    """What to pause, for how long, and why. ``cleaned_data["until"]`` is the end; None: until it is resumed."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Pause"),
        choices=[
            (PauseKind.QUEUE.value, gettext_lazy("a queue")),
            (PauseKind.TASK.value, gettext_lazy("a task")),
            (PauseKind.FLAG.value, gettext_lazy("all jobs with a flag")),
        ],
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=MAX_INDEXED_FLAG_LENGTH,
        strip=False,
        widget=forms.TextInput(attrs={"list": "gw-names", "autocomplete": "off"}),
    )
    length = forms.ChoiceField(
        label=gettext_lazy("How long"),
        required=False,
        choices=[
            ("", gettext_lazy("until it is resumed, or until the time below")),
            ("15", gettext_lazy("15 minutes")),
            ("60", gettext_lazy("an hour")),
            ("240", gettext_lazy("4 hours")),
            ("1440", gettext_lazy("a day")),
        ],
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Until"), required=False, widget=DateTimeLocalInput, help_text=time_zone_help()
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=MAX_REASON_LENGTH,
        help_text=gettext_lazy("Every page of the queue shows it."),
    )
    create = forms.BooleanField(
        label=gettext_lazy("Also if it is unknown"),
        required=False,
        help_text=gettext_lazy("For a queue or a task whose first job is still to be added."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        # A time that was filled in means that time, whatever the choice above it says.
        if cleaned.get("until") is None and (length := LENGTHS.get(cleaned.get("length", ""))):
            cleaned["until"] = timezone.now() + length
        return cleaned


class PausedWorkAdmin(PageAdmin):
    """What is paused, with the user and the reason of each pause."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        resume = self.admin_site.admin_view(self.resume_view)
        return [path("resume/", resume, name="graphile_worker_pausedwork_resume"), *super().get_urls()]

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        may_pause = self.has_pause_permission(request)
        is_sent = request.method == "POST"
        self.require(may_pause or not is_sent)
        initial = {name: value for name in ("kind", "name") if (value := request.GET.get(name))}
        form = PauseForm(request.POST if is_sent else None, initial=initial)
        if is_sent and form.is_valid() and self._pause(request, form):
            return HttpResponseRedirect(self.url(request, "pausedwork"))
        alias = databases.selected_alias(request)
        with databases.reading(alias) as session:
            paused = api.pauses(using=alias)
            names = self._names(request, alias, session) if may_pause else []
        context = {
            "rows": [pause_notice.shown(pause) for pause in paused],
            "form": form if may_pause else None,
            "names": names,
            "may_pause": may_pause,
            "pause_url": self.url(request, "pausedwork"),
        }
        return self.render(request, "pauses.html", context)

    def _names(self, request: HttpRequest, alias: str, session: databases.Session) -> list[tuple[str, str]]:
        """Return tasks and queues that the form suggests, unless the user may see some jobs only."""
        if self.visible_ids(request, alias) is not None:
            return []
        tasks = known_names.known_tasks(session.cursor, schema=session.schema)[:MAX_SUGGESTED]
        queues = known_names.some_queues(session.cursor, schema=session.schema)[:MAX_SUGGESTED]
        return [*((name, _("queue")) for name in queues), *((name, _("task")) for name in tasks)]

    @explain_database_errors
    @require_post
    def resume_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_pause_permission(request))
        kind, name = request.POST.get("kind", ""), request.POST.get("name", "").replace("\x00", "")
        if kind not in list(PauseKind) or not name:
            raise Http404
        alias, target = databases.selected_alias(request), {kind: name}
        with databases.writing(alias):
            pause = api.resume(**target, by=request.user.get_username(), using=alias)
            if pause is not None:
                resumed = Message(gettext_noop("Resumed."))
                audit.log(request, PausedWork, f"{kind}:{name}"[:200], f"{kind} {name}", resumed)
        if pause is None:
            messages.warning(request, NOT_PAUSED[PauseKind(kind)] % {"name": name})
        else:
            messages.success(request, RESUMED[PauseKind(kind)] % {"name": name})
        return HttpResponseRedirect(self.url_or_index(request, "pausedwork"))

    def _pause(self, request: HttpRequest, form: PauseForm) -> bool:
        """Pause what the form says; return False if it is refused, and the form has the error."""
        alias, given = databases.selected_alias(request), form.cleaned_data
        try:
            with databases.writing(alias):
                pause = api.pause(
                    **{given["kind"]: given["name"]},
                    until=given["until"],
                    reason=given["reason"],
                    by=request.user.get_username(),
                    create=given["create"],
                    using=alias,
                )
                audit.log(request, PausedWork, f"{pause.kind}:{pause.name}"[:200], str(pause), _entry(pause))
        except REFUSED as error:
            message = str(error).replace("create=True", str(_("tick “Also if it is unknown”")))
            form.add_error("name" if "until:" not in message else "until", message)
            return False
        messages.success(request, PAUSED[pause.kind] % {"name": pause.name})
        return True


def _entry(pause: Pause) -> Message:
    """Return the entry of the log about a pause: until when, and why."""
    if pause.until is None:
        message = Message(gettext_noop("Paused."))
    else:
        message = Message(gettext_noop("Paused until %(time)s."), {"time": pause.until})
    if not pause.reason:
        return message
    return Message(gettext_noop("%(message)s Reason: %(reason)s"), {"message": message, "reason": pause.reason})
