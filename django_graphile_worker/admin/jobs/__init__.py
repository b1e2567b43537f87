"""The pages about jobs: the list, a job, adding a job, and the actions on jobs.

``job_admin.JobAdmin`` combines one class for each page, each in the module of its view. The pages have folders:
``job_list`` (the list), ``detail`` (a job) and ``adding``. ``actions_view`` changes jobs and ``undo_view`` undoes that;
the folder ``actions`` has what each action does. All views extend the list: start reading with ``job_list.list_view``.
``states`` and ``failure_times`` are texts of several pages, ``forms`` has the fields of several forms.

The views of the actions are not in ``actions``: they extend the list, and the list shows which actions there are.

The package may import the modules of ``admin`` and everything that they may import, but not the other pages.

To add an action, add it to ``actions.job_actions.ACTIONS``, with a permission that ``list_view.JobListAdmin``
has a method for.
"""

from __future__ import annotations

from django_graphile_worker.admin.jobs.job_admin import JobAdmin

__all__ = ["JobAdmin"]
