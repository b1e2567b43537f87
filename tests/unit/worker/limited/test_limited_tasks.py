from __future__ import annotations

import json

from django_graphile_worker.worker.limited import limited_tasks


def test_lane__has_no_flags_that_differ_from_job_to_job() -> None:
    own = {"expires:1780315200": True, "schedule:17:3600": True, "crontab:3600": True}
    assert limited_tasks._flags(json.dumps(own)) is None
    assert limited_tasks._flags(json.dumps({**own, "slow": True, "schedule:daily": True})) == json.dumps(
        {"schedule:daily": True, "slow": True}
    )
