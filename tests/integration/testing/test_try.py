from __future__ import annotations
import time
from datetime import timedelta, datetime, UTC
import pytest
from django.db import transaction, connection, IntegrityError
from django.utils import timezone
from django.contrib.auth.models import User
from django.test import TestCase
from django_graphile_worker import add_job, task, conf, RetryLater, JobSpec, add_jobs
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs, clock, jobs, assert_enqueued, immediate, assert_enqueued_in
from tests.support.stepped_worker import own_tasks


class Try(TestCase):
    def test_simple(self):
        seen = []
        def greet(payload):
            seen.append(payload)
            return 42
        with own_tasks(greet):
            add_job("greet", {"a": 1})
            ran = run_jobs()
        print(ran)
        assert seen == [{"a": 1}]
        assert jobs() == []

    def test_fail(self):
        def bad(payload):
            User.objects.create(username="x")
            User.objects.create(username="x")
        with own_tasks(bad):
            add_job("bad")
            with self.assertRaises(IntegrityError):
                run_jobs()
            print(jobs())
        assert User.objects.count() == 1

    def test_time(self):
        def quick(payload): pass
        with own_tasks(quick):
            for n in (1, 1, 1, 100):
                t = time.perf_counter()
                add_jobs([JobSpec("quick")] * n)
                t2 = time.perf_counter()
                run_jobs()
                print(n, t2 - t, time.perf_counter() - t2)

    def test_retries(self):
        def bad(payload): raise ValueError(timezone.now())
        with own_tasks(bad), clock() as now:
            add_job("bad")
            t = time.perf_counter()
            now.advance(days=3)
            ran = run_jobs(on_error="record")
            print(len(ran), time.perf_counter() - t, [r.error.args[0] - ran[0].error.args[0] for r in ran][-3:])

    def test_cron(self):
        seen = []
        def tick(payload): seen.append((timezone.now(), payload["_cron"]["ts"]))
        for line in ("0 4 * * *", "0 * * * *"):
            seen.clear()
            with own_tasks(tick, cron=line), clock(datetime(2026, 1, 1, 0, 0, 17, tzinfo=UTC)) as now:
                t = time.perf_counter()
                now.advance(days=30)
                ran = run_jobs(on_error="record")
                print(len(ran), time.perf_counter() - t)
                print(seen[:2], seen[-1])
