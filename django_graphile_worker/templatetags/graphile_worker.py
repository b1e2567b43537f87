"""``{% job_progress job %}``: a bar that shows how far a job has got, and moves by itself."""

from __future__ import annotations

from typing import Any

from django import template
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from django_graphile_worker.results import progress_token, result
from django_graphile_worker.results.reading import JobOrId
from django_graphile_worker.views import progress_context

register = template.Library()


@register.inclusion_tag("graphile_worker/job_progress.html", takes_context=True)
def job_progress(
    context: template.Context,
    job_or_id: JobOrId,
    *,
    finished_url: str = "",
    using: str | None = None,
    installation: str | None = None,
) -> dict[str, Any]:
    """Show the progress of a job. When it has ended, go to ``finished_url``, if there is one."""
    token = progress_token(job_or_id, using=using, installation=installation)
    found = result(job_or_id, using=using, installation=installation)
    return {
        **progress_context(found),
        "json_url": _url("progress", token),
        "page_url": _url("progress_page", token),
        "finished_url": finished_url,
        "csp_nonce": context.get("csp_nonce", ""),
    }


def _url(name: str, token: str) -> str:
    try:
        return reverse(f"graphile_worker:{name}", args=[token])
    except NoReverseMatch:
        raise ImproperlyConfigured(
            "job_progress needs the URLs of django_graphile_worker. "
            'Add path("jobs/", include("django_graphile_worker.urls")) to the urlpatterns.'
        ) from None
