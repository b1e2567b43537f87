"""The operator's command, ``manage.py graphile_worker <verb>``: one class for each verb."""

from __future__ import annotations
