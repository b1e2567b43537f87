from __future__ import annotations

import pytest

from django_graphile_worker.attempts import attempts_made, final_remark


@pytest.mark.parametrize(
    ("attempts", "max_attempts", "error", "made"),
    [
        (0, 25, None, 0),
        (3, 25, "ValueError: no", 3),
        (25, 25, "ValueError: no", 25),
        (25, 25, "PermanentFailure: stolen\n\nNot tried again after attempt 1 of 25.\n\nTraceback …", 1),
        # Rescheduled since: what the error says is about an earlier life.
        (2, 25, "PermanentFailure: stolen\n\nNot tried again after attempt 1 of 25.", 2),
    ],
)
def test_attempts_made__are_read_from_the_error_of_a_job_that_gave_up_early(
    attempts: int, max_attempts: int, error: str | None, made: int
) -> None:
    assert attempts_made(attempts, max_attempts, error) == made


def test_final_remark__is_read_back() -> None:
    assert attempts_made(25, 25, f"X: y\n\n{final_remark(3, 25)}\n\nTraceback") == 3
    assert final_remark(25, 25) == ""
