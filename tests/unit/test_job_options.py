from __future__ import annotations

import dataclasses

from django_graphile_worker.job_options import OPTIONS, DefaultOptions, JobOptions, SpecOptions
from django_graphile_worker.jobs import Job, JobDefaults, JobSpec

FIELDS_OF_SPECS = [each.name for each in dataclasses.fields(JobSpec)]


def test_types__have_each_option_of_the_table() -> None:
    assert list(SpecOptions.__annotations__) == list(OPTIONS)
    assert list(JobOptions.__annotations__) == [*OPTIONS, "using", "installation"]
    of_tasks = [name for name, option in OPTIONS.items() if option.is_of_tasks]
    assert list(DefaultOptions.__annotations__) == of_tasks


def test_specs_and_defaults__have_each_option_of_the_table() -> None:
    assert ["identifier", "payload", *OPTIONS] == FIELDS_OF_SPECS
    assert [each.name for each in dataclasses.fields(JobDefaults)] == list(DefaultOptions.__annotations__)


def test_each_option__is_stored_somewhere_and_passes_none() -> None:
    for name, option in OPTIONS.items():
        assert option.check(None) is None, name
        assert option.attribute is None or hasattr(Job, option.attribute) or option.attribute in Job.__annotations__
