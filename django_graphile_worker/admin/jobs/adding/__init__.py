"""The page that adds a job: ``add_view`` is the view, ``add_form`` the form, ``task_facts`` what it says about a task.

Start with ``add_view``, which extends the page of a job: a job can be added with the values of another one. The folder
may import ``detail``, ``job_list`` and the modules beside it in ``admin/jobs``.
"""

from __future__ import annotations
