"""The pages about jobs: the list, a job, adding a job, and the actions on jobs.

``job_admin.JobAdmin`` is the ModelAdmin: its columns, filters and actions; start reading there. ``change_list`` reads
a page of the list, ``search`` says what the text of the search means, ``action_pages`` confirms an action and shows how
far it has got, and ``bulk_action`` performs it in steps. ``job_actions`` has the actions: to add one, add it to
``ACTIONS`` and to ``action_pages``. ``job_page`` is the page of a job, with ``job_facts`` and ``job_contents``;
``add_page`` adds a job, and ``exporting`` sends a list as a file.

The package may import the modules of ``admin`` and everything that they may import, but not the other pages.
"""

from __future__ import annotations

from django_graphile_worker.admin.jobs.job_admin import JobAdmin

__all__ = ["JobAdmin"]
