"""The page of a job, and the page on which a failed job gets another payload.

Start with ``detail_view``; ``edit_view`` extends it. The page consists of ``facts``, ``timeline``, ``payload_tree``,
``outcome``, ``tracebacks`` and ``add_job_code`` (code that adds the job again). ``missing_job`` is the page of a job
that does not exist, with its ``ending``. The folder may import ``actions``, ``job_list`` and the modules beside it in
``admin/jobs``.
"""

from __future__ import annotations
