"""The wait of one caller for one job, and when to look at the job."""

from __future__ import annotations

import math
from concurrent.futures import Future

from django_graphile_worker.sql.results import ResultRow

# Seconds from the beginning of a wait to its first looks, and between the looks after them.
FIRST_LOOKS = (0.05, 0.3, 1.5)
LOOK_INTERVAL = 5.0
# Without notifications: seconds between looks, which grow with the time that the wait has taken.
SHORTEST_POLL, LONGEST_POLL, POLL_SHARE = 0.02, 1.0, 0.2


class Wait(Future[ResultRow | None]):
    """A future of the row of a job that has ended; of None if nothing of the job is kept."""

    def __init__(self, job_id: int, schema: str, *, is_notified: bool = True) -> None:
        super().__init__()
        self.job_id = job_id
        self.schema = schema
        # Whether workers notify of the ends of the jobs in this schema.
        self.is_notified = is_notified
        self.began_at = math.inf
        self.next_look_at = -math.inf
        self.listed_until = -math.inf

    def begin(self, now: float) -> None:
        self.began_at = now

    def look_at_once(self) -> None:
        """Be listed and looked at again in the next step: the connection is a new one."""
        self.listed_until = self.next_look_at = -math.inf

    def look_later(self, now: float, *, is_listening: bool) -> None:
        """Choose the time of the next look: soon in a new wait, which may have begun while the job was ending."""
        age = now - self.began_at
        if is_listening and self.is_notified:
            self.next_look_at = self.began_at + next((each for each in FIRST_LOOKS if each > age), age + LOOK_INTERVAL)
        else:
            self.next_look_at = now + min(max(POLL_SHARE * age, SHORTEST_POLL), LONGEST_POLL)

    def see(self, row: ResultRow | None) -> bool:
        """Note the row of a look; return True if the wait is over."""
        if not (row is None or row.has_ended):
            return False
        if self.set_running_or_notify_cancel():
            self.set_result(row)
        return True

    def end_with(self, error: BaseException) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)
