"""Signed tokens. The token of a job gives access to the progress of this job, and of no other job."""

from __future__ import annotations

from datetime import timedelta

from django.core import signing

from django_graphile_worker.results.job_ids import JobOrId, job_and_place
from django_graphile_worker.routing import Place, place_of

SALT = "django_graphile_worker.progress"
# After this time a token is refused. A page that shows a bar for longer is loaded again.
LONGEST_AGE = timedelta(days=7)


def progress_token(job_or_id: JobOrId, *, using: str | None = None, installation: str | None = None) -> str:
    """Return the text that gives its holder the right to see the progress of this job, for a week."""
    job_id, place = job_and_place(job_or_id, using, installation)
    return signing.dumps([job_id, place.using, place.installation], salt=SALT)


def read_token(token: str) -> tuple[int, Place]:
    """Return the job and the place of a token; raise ``signing.BadSignature`` for any other or an old text."""
    job_id, using, installation = signing.loads(token, salt=SALT, max_age=LONGEST_AGE)
    return int(job_id), place_of(using, installation)
