"""``Stop``: why one run of a job must stop before its task returns."""

from __future__ import annotations

from typing import Literal

from django_graphile_worker.frozen import Frozen

StopKind = Literal["timeout", "cancelled"]


class Stop(Frozen):
    """The request to stop one run of a job. It concerns the job, and not the worker, which continues."""

    kind: StopKind
    # Why, as text for people: the reason of a cancellation, or the time limit.
    reason: str = ""
    # Who requested it, as text for people; empty for a time limit.
    by: str = ""
