"""The page of pauses: what is paused, a form that pauses, and a button that resumes."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext as _

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases, pause_notice
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.admin.pauses import sentences
from django_graphile_worker.admin.pauses.forms import PauseForm
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError
from django_graphile_worker.models import PausedWork
from django_graphile_worker.sql.control import PauseKind

REFUSED = (InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError)


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
        form = PauseForm(request.POST if is_sent else None, initial=_initial(request))
        if is_sent and form.is_valid() and self._pause(request, form):
            return HttpResponseRedirect(self.url(request, "pausedwork"))
        with databases.reading(alias := databases.selected_alias(request)):
            paused = api.pauses(using=alias)
        context = {
            "rows": [pause_notice.shown(pause) for pause in paused],
            "form": form if may_pause else None,
            "may_pause": may_pause,
            "pause_url": self.url(request, "pausedwork"),
        }
        return self.render(request, "pauses.html", context)

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
                audit.log(request, PausedWork, f"{kind}:{name}"[:200], f"{kind} {name}", sentences.resumed_entry())
        if pause is None:
            messages.warning(request, sentences.NOT_PAUSED[PauseKind(kind)] % {"name": name})
        else:
            messages.success(request, sentences.RESUMED[PauseKind(kind)] % {"name": name})
        return HttpResponseRedirect(self.url_or_index(request, "pausedwork"))

    def _pause(self, request: HttpRequest, form: PauseForm) -> bool:
        """Pause what the form says; return False if it is refused, and the form has the error."""
        alias, given = databases.selected_alias(request), form.cleaned_data
        try:
            with databases.writing(alias):
                pause = api.pause(
                    **form.target(),
                    until=given["until"],
                    reason=given["reason"],
                    by=request.user.get_username(),
                    create=given["create"],
                    using=alias,
                )
                entry = sentences.paused_entry(pause)
                audit.log(request, PausedWork, f"{pause.kind}:{pause.name}"[:200], str(pause), entry)
        except REFUSED as error:
            message = str(error).replace("create=True", str(_("tick “Also if it is unknown”")))
            form.add_error("name" if "until:" not in message else "until", message)
            return False
        messages.success(request, sentences.PAUSED[pause.kind] % {"name": pause.name})
        return True


def _initial(request: HttpRequest) -> dict[str, str]:
    """Return the values of a link that names what to pause."""
    return {name: value for name in ("kind", "name") if (value := request.GET.get(name))}
