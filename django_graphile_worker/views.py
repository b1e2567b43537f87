"""The progress of a job as JSON, and as a small page that a browser without scripts loads again and again.

A request is permitted by the signed token in its URL, or by the function of the project that the setting
``PROGRESS_PERMISSION`` names. Neither the payload of the job nor what its task returned is sent.

``metrics`` has the gauges of the queue for Prometheus. No URL leads to it until the project writes one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.crypto import constant_time_compare
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from django_graphile_worker import conf
from django_graphile_worker.results import Result, ResultStatus, result
from django_graphile_worker.results.reading import LARGEST_ID, read_token
from django_graphile_worker.routing import all_places
from django_graphile_worker.telemetry import NO_PROMETHEUS, readings

# Seconds after which the page without scripts is loaded again.
RELOAD_INTERVAL = 2


@require_safe
@never_cache
def progress(request: HttpRequest, token: str) -> HttpResponse:
    """Return the progress of the job of a token."""
    return _as_json(_result_of_token(token))


@require_safe
@never_cache
def job_progress(request: HttpRequest, job_id: int) -> HttpResponse:
    """Return the progress of a job, if the function of the project permits it."""
    permission = conf.current().progress_permission
    if permission is None:
        error = (
            "The URL has the id of a job in place of its token: ids are accepted only if "
            'GRAPHILE_WORKER["PROGRESS_PERMISSION"] names a function that decides who may see which job.'
        )
        return JsonResponse({"error": error}, status=403)
    may_see = import_string(permission) if isinstance(permission, str) else permission
    if not 1 <= job_id <= LARGEST_ID or not may_see(request, job_id):
        return JsonResponse({"error": "Not permitted."}, status=403)
    return _as_json(result(job_id))


@require_safe
@never_cache
@xframe_options_sameorigin
def progress_page(request: HttpRequest, token: str) -> HttpResponse:
    """Show a bar, in a page for an ``iframe`` that needs no script."""
    found = _result_of_token(token)
    context = {**progress_context(found), "reload_interval": RELOAD_INTERVAL}
    return render(request, "graphile_worker/progress_page.html", context)


def progress_context(found: Result | None) -> dict[str, Any]:
    """Return what the templates show of a job; nothing is known of a job that is gone."""
    is_over = found is None or found.is_finished
    has_succeeded = found is None or found.status is ResultStatus.SUCCEEDED
    reported = None if found is None else found.progress
    percent = None if reported is None else reported.percent
    return {
        "status": "gone" if found is None else found.status.value,
        "status_name": _("Finished") if found is None or has_succeeded else found.status.label,
        "is_over": is_over,
        "has_succeeded": has_succeeded,
        "percent": 100 if is_over and has_succeeded else percent,
        "message": "" if reported is None else reported.message,
    }


def _result_of_token(token: str) -> Result | None:
    try:
        job_id, place = read_token(token)
    except signing.BadSignature:
        raise Http404("The token of the job is not valid, or too old.") from None
    return result(job_id, using=place.using, installation=place.installation)


def _as_json(found: Result | None) -> JsonResponse:
    reported = None if found is None else found.progress
    shown = progress_context(found)
    return JsonResponse(
        {
            "status": shown["status"],
            "status_name": shown["status_name"],
            "is_finished": shown["is_over"],
            "percent": shown["percent"],
            "progress": None
            if reported is None
            else {
                "done": reported.done,
                "total": reported.total,
                "message": reported.message,
                "updated_at": reported.updated_at,
            },
        }
    )


@require_safe
@never_cache
@login_not_required
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the gauges of the queue in the format of Prometheus, to clients that have the token of the settings.

    With ``?format=json``, return only how much work waits, by the name of the database, for a program that starts and
    stops workers.
    """
    token = conf.current().metrics_token
    if token is None:
        return _text('Set GRAPHILE_WORKER["METRICS_TOKEN"]: only requests with this token see the metrics.', 403)
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(given.strip(), token):
        response = _text('Send the header "Authorization: Bearer ..." with the token of METRICS_TOKEN.', 401)
        response["WWW-Authenticate"] = "Bearer"
        return response
    gauges = readings.cached_gauges(all_places())
    if request.GET.get("format") == "json":
        names = ("backlog_seconds", "backlog_seconds_per_slot")
        found = {label: each and {name: getattr(each, name) for name in names} for label, each in gauges.items()}
        return JsonResponse(found, status=503 if None in gauges.values() else 200)
    if find_spec("prometheus_client") is None:
        return _text(NO_PROMETHEUS, 501)
    from django_graphile_worker.telemetry import prometheus

    content = prometheus.exposition(gauges)
    return HttpResponse(content, content_type=prometheus.CONTENT_TYPE)


def _text(text: str, status: int) -> HttpResponse:
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")
