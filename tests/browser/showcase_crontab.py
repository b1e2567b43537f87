"""The schedules of the showcase, in a module that settings can import."""

from __future__ import annotations

CRONTAB = """
0 4 * * 1-5 refresh_search_index ?id=nightly-index&tz=Europe/Paris&fill=2d
*/15 * * * * fetch_exchange_rates ?max=3
0 8 1 * * ask_for_review ?id=monthly-reviews&queue=mail
"""
