from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.migration.conftest import Site, make_site, site, worker
from tests.node.runtime import Node, NodeMissingError, node

__all__ = ["make_site", "site", "worker"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def node_runtime() -> Node:
    try:
        return node()
    except NodeMissingError as reason:
        pytest.skip(f"No real graphile-worker here: {reason}.")


@dataclass(frozen=True)
class NodeWorker:
    """The real graphile-worker on the database of a site."""

    node: Node
    site: Site

    def migrate(self, schema: str | None = None) -> None:
        self.node.run("migrate.mjs", self.site.url, schema or self.site.schema)

    def add(self, *requests: dict[str, Any]) -> list[Any]:
        """Add jobs with the JavaScript API, and return the jobs that it returned."""
        process = self.node.start("add.mjs", self.site.url, self.site.schema)
        output, errors = process.communicate("\n".join(map(json.dumps, requests)), timeout=60)
        assert process.returncode == 0, errors
        return [json.loads(line) for line in output.splitlines()]

    def work(self, count: int, *tasks: str) -> list[Any]:
        """Run the Node.js worker until a number of jobs have succeeded, and return these jobs."""
        lines = self.node.run("work.mjs", self.site.url, self.site.schema, str(count), *tasks)
        return [line for line in lines if "ready" not in line]  # type: ignore[operator]


@pytest.fixture
def node_worker(node_runtime: Node, site: Site) -> NodeWorker:
    return NodeWorker(node_runtime, site)
