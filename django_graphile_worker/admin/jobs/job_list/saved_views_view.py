"""The page of saved views: save the list that the user came from, rename, share and delete."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker.admin import audit, databases
from django_graphile_worker.admin.jobs.job_list.list_view import JobListAdmin
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.saved_views import saved_views
from django_graphile_worker.admin.saved_views.saved_view_form import SavedViewForm
from django_graphile_worker.admin.saved_views.saved_view_links import saved_view_links
from django_graphile_worker.models import SavedView
from django_graphile_worker.routing import queue_alias
from django_graphile_worker.sql.inspection.job_search.criteria import State


class JobSavedViewsAdmin(JobListAdmin):
    """The page of saved views. Each user changes the views of that user; with a permission, also shared views."""

    def has_share_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "share_savedview")

    @explain_database_errors
    def views_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if request.method == "POST" and request.POST.get("change"):
            return self._change(request, request.POST["change"])
        source = request.POST if request.method == "POST" else request.GET
        parameters = saved_views.parameters_from(source)
        may_share = self.has_share_permission(request)
        form = SavedViewForm(request.POST if request.method == "POST" else None, may_share=may_share)
        if request.method == "POST" and form.is_valid() and self._save(request, form, parameters):
            return HttpResponseRedirect(self.url(request, "job", **parameters))
        with databases.reading(queue_alias()):
            views = saved_views.visible_views(request)
        context = {
            "title": _("Saved views"),
            "form": form,
            "parameters": parameters,
            "state_name": _state_name(parameters.get("state", "")),
            "views": [
                {"link": link, "state_name": _state_name(link.state)}
                for link in saved_view_links(request, views, self.url(request, "job"))
            ],
            "may_share": may_share,
            "list_url": self.url(request, "job", **parameters),
            "views_url": self.url(request, "job", "views"),
        }
        return self.render(request, "saved_views.html", context)

    def _save(self, request: HttpRequest, form: SavedViewForm, parameters: dict[str, str]) -> bool:
        """Save the view of the form; return False if it is refused, and the form has the error."""
        name, is_shared = form.cleaned_data["name"], bool(form.cleaned_data.get("is_shared"))
        try:
            with databases.writing(queue_alias()):
                view = saved_views.save_view(request, name, parameters, is_shared=is_shared)
                if is_shared:
                    audit.log(request, SavedView, str(view.pk), name, audit.Message(gettext_noop("Shared.")))
        except saved_views.SavedViewError as error:
            form.add_error(None, str(error))
            return False
        messages.success(request, _("Saved the view “%(name)s”.") % {"name": name})
        return True

    def _change(self, request: HttpRequest, change: str) -> HttpResponse:
        """Rename, share or delete a view, and show the page again."""
        view = self._changeable_view(request)
        with databases.writing(queue_alias()):
            try:
                message = self._apply(request, view, change)
            except saved_views.SavedViewError as error:
                messages.error(request, str(error))
            else:
                messages.success(request, str(message))
                if view.is_shared or change == "share":
                    audit.log(request, SavedView, str(view.pk), view.name, message)
        return HttpResponseRedirect(self.url(request, "job", "views"))

    def _changeable_view(self, request: HttpRequest) -> SavedView:
        chosen = request.POST.get("view", "")
        with databases.reading(queue_alias()):
            view = next((each for each in saved_views.visible_views(request) if str(each.pk) == chosen), None)
        if view is None:
            raise Http404
        self.require(view.owner == saved_views.owner_of(request) or self.has_share_permission(request))
        return view

    def _apply(self, request: HttpRequest, view: SavedView, change: str) -> audit.Message:
        """Change the view, and return what to tell the user."""
        name = {"name": view.name}
        if change == "delete":
            saved_views.delete_view(view)
            return audit.Message(gettext_noop("Deleted the view “%(name)s”."), name)
        if change == "unshare":
            saved_views.share_view(view, is_shared=False)
            return audit.Message(gettext_noop("The view “%(name)s” is no longer shared."), name)
        if change == "share":
            self.require(self.has_share_permission(request))
            saved_views.share_view(view, is_shared=True)
            return audit.Message(gettext_noop("Shared the view “%(name)s”."), name)
        if change != "rename":
            raise Http404
        form = SavedViewForm(request.POST, may_share=False)
        new_name = form.cleaned_data["name"] if form.is_valid() else ""
        saved_views.rename_view(view, new_name)
        return audit.Message(
            gettext_noop("Renamed the view “%(name)s” to “%(new_name)s”."), {**name, "new_name": new_name}
        )


def _state_name(value: str) -> str:
    return str(state_name(State(value))) if value in State._value2member_map_ else ""
