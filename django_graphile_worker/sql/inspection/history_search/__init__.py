"""Finds attempts in the history, as fast with thirty days of millions as with few.

``criteria`` describes the attempts of a search, and the conditions of its statement. ``spans`` finds the span of time
that has the newest attempts of a day that is still written. ``past_attempts`` reads them: start there.
"""

from __future__ import annotations
