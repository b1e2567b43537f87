"""The axes of a chart."""

from __future__ import annotations

import pytest

from django_graphile_worker.admin.charts.chart_axes import round_up


@pytest.mark.parametrize("most", [0.0, 1.0, 7.0, 9.0, 130.0, 0.033, 1.5, 250.0, 12_345.0])
def test_an_axis_ends_at_a_number_whose_half_is_easy_to_read(most: float) -> None:
    top = round_up(most)
    assert most <= top <= max(most * 2, 1.0)
    digits = f"{top / 2:e}".partition("e")[0].rstrip("0")
    assert len(digits) <= 2, "one digit and zeros: 1.25 was shown as 1.2"
