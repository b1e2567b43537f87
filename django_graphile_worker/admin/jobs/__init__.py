"""The pages about jobs: the list, a job, adding a job, and the actions on jobs.

``job_admin.JobAdmin`` combines one class for each page, each in the module of its view: ``search_view`` (the search of
the list and its completion), ``list_view`` (tabs, permissions), then ``detail_view``, ``add_view`` and
``actions_view``, which all extend the list. Start reading with
``list_view``. The views use the other modules: the list uses ``pagination``; the page of a job uses the folder
``detail`` and ``add_job_code``; adding a job and the actions use ``forms``; the actions also use the folder
``actions``.

The package may import the modules of ``admin`` and everything that they may import, but not the other pages.

To add an action, add it to ``actions.job_actions.ACTIONS``, with a permission that ``list_view.JobListAdmin``
has a method for.
"""

from __future__ import annotations

from django_graphile_worker.admin.jobs.job_admin import JobAdmin

__all__ = ["JobAdmin"]
