"""How long the last jobs took, on average."""

from __future__ import annotations

# Jobs: earlier jobs count for as many as this. Otherwise, a few jobs that were interrupted would change the mean of
# thousands.
MEMORY = 50


class MeanDuration:
    """The mean duration of the last jobs, which follows a change within a few dozen jobs."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._jobs = 0

    def add(self, jobs: int, seconds: float) -> None:
        """Add jobs that took this long together."""
        if jobs:
            earlier = min(self._jobs, MEMORY)
            self.seconds = ((self.seconds or 0.0) * earlier + seconds) / (earlier + jobs)
            self._jobs += jobs

    def forget(self) -> None:
        """Forget all jobs."""
        self.seconds, self._jobs = None, 0
