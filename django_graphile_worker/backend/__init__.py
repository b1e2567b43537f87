"""The backend of Django Tasks: jobs of this package for functions that are decorated with Django's ``@task``.

Start reading with ``backend.py``, which adds jobs and reads results, then ``runnable.py``, which a worker calls. Only
``compat.py`` knows whether the framework is ``django.tasks`` of Django 6 or the package ``django-tasks``.

The folder may import ``api``, ``routing``, ``registry``, ``sql`` and the layers below them, but not ``worker``. A
project without the backend in ``settings.TASKS`` never imports it.
"""

from __future__ import annotations

from django_graphile_worker.backend.backend import GraphileWorkerBackend, aenqueue_many, enqueue_many
from django_graphile_worker.backend.tasks import task

__all__ = ["GraphileWorkerBackend", "aenqueue_many", "enqueue_many", "task"]
