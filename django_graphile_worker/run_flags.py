"""The flag by which a job says that it is a run of a schedule, and for how long its outcome is kept.

``schedule:<id>:<seconds>`` is a run of the schedule with this id, ``crontab:<seconds>`` a run of an item of the crontab
in the code of a project. The flag travels with the job, so each worker of this package that ends the job knows that it
records the outcome. Any other flag that begins in the same way belongs to the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

SCHEDULE_PREFIX = "schedule:"
CRONTAB_PREFIX = "crontab:"
# The outcomes of about as many runs are kept.
RUNS_KEPT = 25
SHORTEST_KEEP = timedelta(hours=1)
LONGEST_KEEP = timedelta(days=400)

_RUN_FLAG = re.compile(r"(?:schedule:(?P<schedule>[0-9]{1,18})|crontab):(?P<seconds>[0-9]{1,9})")
_IN_JSON = re.compile(rf'"{_RUN_FLAG.pattern}"')


def schedule_flag(schedule_id: int, keep: timedelta) -> str:
    """Return the flag of a run of a schedule, whose outcome is kept for a time between the two limits."""
    return f"{SCHEDULE_PREFIX}{schedule_id}:{_whole_seconds(keep)}"


def crontab_flag(keep: timedelta) -> str:
    """Return the flag of a run of an item of the crontab."""
    return f"{CRONTAB_PREFIX}{_whole_seconds(keep)}"


def _whole_seconds(keep: timedelta) -> int:
    return int(min(max(keep, SHORTEST_KEEP), LONGEST_KEEP).total_seconds())


def is_run_flag(flag: str) -> bool:
    return _RUN_FLAG.fullmatch(flag) is not None


def without_run_flags(flags: Iterable[str]) -> list[str]:
    """Return the flags that a person or a program of the project has given to a job."""
    return [flag for flag in flags if not is_run_flag(flag)]


def schedule_in(flags: Iterable[str]) -> int | None:
    """Return the id of the schedule of which a job with these flags is a run."""
    found = (_RUN_FLAG.fullmatch(flag) for flag in flags)
    return next((int(each["schedule"]) for each in found if each is not None and each["schedule"]), None)


def keep_in(flags_text: str | None) -> float | None:
    """Return the seconds that the flags in the JSON of a row say; None if the job is not the run of a schedule."""
    if flags_text is None:
        return None
    return max((float(each["seconds"]) for each in _IN_JSON.finditer(flags_text)), default=None)
