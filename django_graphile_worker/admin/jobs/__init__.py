"""The pages about jobs: the list, a job, adding a job, and the actions on jobs.

``job_admin.JobAdmin`` is built of one class for each page, each in the module of its view: ``list_view`` (search, tabs,
permissions), then ``detail_view``, ``add_view`` and ``actions_view``, which all extend the list. Start reading with
``list_view``. The other modules serve these views: ``pagination`` the list; ``facts``, ``timeline``, ``tracebacks``,
``payload_tree`` and ``add_job_code`` the page of a job; ``forms`` adding a job and the actions; ``actions``,
``bulk_progress`` and ``action_messages`` the actions.

The package may import the modules of ``admin`` and everything that they may import, but not the other pages.

To add an action, add it to ``actions.ACTIONS``, with a permission that ``list_view.JobListAdmin`` has a method for.
"""

from __future__ import annotations

from django_graphile_worker.admin.jobs.job_admin import JobAdmin

__all__ = ["JobAdmin"]
