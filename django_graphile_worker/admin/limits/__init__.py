"""The limits page: ``page`` shows limits and keys at their limit, ``form`` has the numbers that an operator changes.

Both read through ``api.limits`` and ``sql.inspection.limited_keys``. Start reading with ``page``.
"""

from __future__ import annotations

from django_graphile_worker.admin.limits.page import LimitKeyAdmin

__all__ = ["LimitKeyAdmin"]
