"""Statements of recurring tasks of the code: the known crontabs, their ticks and their pauses.

Start with ``crontabs``, the rows of the known crontabs. ``crontab_ticks`` adds the job of a tick, and
``paused_crontabs`` pauses and resumes items. ``sql/schedules`` has the statements of schedules, which people edit. The
folder may import the modules beside it in ``sql``.
"""

from __future__ import annotations
