"""The page that undoes an action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.actions.job_actions import ACTIONS
from django_graphile_worker.admin.jobs.job_list.list_view import JobListAdmin
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.job_actions import bulk_steps, undo


class JobUndoAdmin(JobListAdmin):
    """The page that gives the jobs of an action the values that they had before it."""

    @explain_database_errors
    def undo_view(self, request: HttpRequest, action_id: UUID) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias, made_by = databases.selected_alias(request), str(request.user.pk)
        # The user may see fewer jobs than when the action was performed.
        visible = Criteria(within=self.visible_ids(request, alias))
        with databases.reading(alias) as (cursor, schema):
            steps = undo.stored_steps(cursor, action_id, made_by, schema=schema)
            ids = [each for step in steps for each in step.changed_ids]
            ids = bulk_steps.matching_ids(cursor, visible, ids, schema=schema)
        action = ACTIONS.get(steps[0].action) if steps else None
        if action is None:
            message = _(
                "This action can no longer be undone: it was undone before, or is more than an hour old, or was not "
                "yours."
            )
            messages.warning(request, message)
            return HttpResponseRedirect(self.url(request, "job"))
        self.require(action.is_allowed(self, request))
        if request.method == "POST":
            return self._undo(request, alias, action_id, steps, action.title, visible)
        context = {
            "title": _("Undo “%(action)s” for %(jobs)s?")
            % {"action": action.title, "jobs": formatting.job_count(len(ids))},
            "action": action,
            "list_url": self.url(request, "job"),
            "ids": ids[:10],
            "job_urls": [(each, self.url(request, "job", "change", each)) for each in ids[:10]],
            "has_more": len(ids) > 10,
        }
        return self.render(request, "undo.html", context)

    def _undo(
        self,
        request: HttpRequest,
        alias: str,
        action_id: UUID,
        steps: Sequence[undo.StoredStep],
        title: str,
        visible: Criteria,
    ) -> HttpResponse:
        """Undo each step in a transaction of its own, with its entry in the log."""
        restored: list[int] = []
        for step in steps:
            with databases.writing(alias) as (cursor, schema):
                only = None
                if visible.within is not None:
                    only = bulk_steps.matching_ids(cursor, visible, step.changed_ids, schema=schema)
                ids = undo.undo_step(cursor, action_id, step.number, schema=schema, only=only)
                if ids:
                    entry = audit.BulkEntry(request, Job, _undone(title))
                    entry.write(ids, len(ids), is_last=True)
            restored += ids
        left = {each for step in steps for each in step.changed_ids} - set(restored)
        with databases.reading(alias) as (cursor, schema):
            shown = bulk_steps.matching_ids(cursor, visible, list(left), schema=schema) if left else []
            states = bulk_steps.states_of(cursor, shown, schema=schema) if shown else {}
        _report(request, restored, left, states, is_restricted=visible.within is not None)
        if len(restored) == 1:
            return HttpResponseRedirect(self.url(request, "job", "change", restored[0]))
        return HttpResponseRedirect(self.url(request, "job"))


def _undone(title: str) -> audit.Message:
    return audit.Message(gettext_noop("Undid “%(action)s”."), {"action": title})


def _report(
    request: HttpRequest, restored: Sequence[int], left: Any, states: dict[State, list[int]], *, is_restricted: bool
) -> None:
    if restored:
        message = ngettext(
            "%(number)s job is as it was before.", "%(number)s jobs are as they were before.", len(restored)
        )
        messages.success(request, message % {"number": formatting.number(len(restored))})
    for state, ids in states.items():
        if state is State.RUNNING:
            message = ngettext(
                "%(number)s job was not restored, because a worker is running it.",
                "%(number)s jobs were not restored, because workers are running them.",
                len(ids),
            )
        else:
            message = ngettext(
                "%(number)s job was not restored, because it was changed since. Its state is “%(state)s”.",
                "%(number)s jobs were not restored, because they were changed since. Their state is “%(state)s”.",
                len(ids),
            )
        messages.warning(request, message % {"number": formatting.number(len(ids)), "state": state_name(state)})
    ended = len(left) - sum(len(ids) for ids in states.values())
    if ended:
        messages.warning(request, _ended(ended, is_restricted=is_restricted) % {"number": formatting.number(ended)})


def _ended(number: int, *, is_restricted: bool) -> str:
    if is_restricted:
        return ngettext(
            "%(number)s job was not restored: it has ended, or you may not see it.",
            "%(number)s jobs were not restored: they have ended, or you may not see them.",
            number,
        )
    return ngettext(
        "%(number)s job was not restored, because it has ended.",
        "%(number)s jobs were not restored, because they have ended.",
        number,
    )
