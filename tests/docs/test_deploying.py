"""The examples in deploy/: their programs accept them, and their commands, ports and times agree with each other."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from django_graphile_worker import probe
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.commands.runworker import plan_from
from django_graphile_worker.worker.process.plan import Plan
from django_graphile_worker.worker.process.systemd import STOP_RESERVE
from tests.docs.pages import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
# A worker under a supervisor: the supervisor itself, and the process that starts beside the old one.
MEGABYTES_BESIDE = 300


def _service(path: Path) -> dict[str, str]:
    parser = RawConfigParser(strict=False)
    # Keys of systemd have capital letters.
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(path)
    return dict(parser["Service"])


def _compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())["services"]  # type: ignore[no-any-return]


def _manifests(name: str = "*") -> list[dict[str, Any]]:
    files = (DEPLOY / "kubernetes").glob(f"{name}.yaml")
    return [document for path in sorted(files) for document in yaml.safe_load_all(path.read_text())]


def _kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in _manifests() if each.get("kind") == kind]
    return found


def _pod(kind: str) -> dict[str, Any]:
    return _kind(kind)["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def _container(kind: str) -> dict[str, Any]:
    (container,) = _pod(kind)["containers"]
    return container  # type: ignore[no-any-return]


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of Django in the examples, with the file that it is in."""
    lines = [(path.name, shlex.split(_service(path)["ExecStart"])) for path in UNITS]
    lines += [(f"compose {name}", each["command"]) for name, each in _compose().items() if "command" in each]
    containers = [(kind, _container(kind)) for kind in ("Deployment", "Job")]
    lines += [(kind, [*each["command"], *each.get("args", [])]) for kind, each in containers]
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    lines.append(("Dockerfile", yaml.safe_load(dockerfile.rpartition("CMD ")[2])))
    for name, words in lines:
        if "manage.py" in words:
            assert Path(words[0]).name == "python", name
            yield name, words[words.index("manage.py") + 1 :]


COMMANDS = dict(_commands())


def _options(words: list[str]) -> dict[str, Any]:
    words = ["--tasks", "mail:*"] if words == ["$RUNWORKER_OPTIONS"] else words
    parser = load_command_class("django_graphile_worker", "runworker").create_parser("", "")
    return vars(parser.parse_args(words))


def _plan(name: str) -> Plan:
    return plan_from(_options(COMMANDS[name][1:]), is_colored=False)


def _grace_period(name: str) -> float:
    return _plan(name).settings.grace_period


def test_examples__are_all_found() -> None:
    assert set(COMMANDS) == {
        "graphile-worker.service",
        "graphile-worker@.service",
        "compose migrate",
        "compose worker",
        "Deployment",
        "Job",
        "Dockerfile",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_command__is_accepted(name: str) -> None:
    command, *words = COMMANDS[name]
    if command == "runworker":
        assert _plan(name).settings.concurrency > 0
    else:
        assert (command in get_commands(), words) == (True, [])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit__agrees_with_the_worker(path: Path) -> None:
    service = _service(path)
    assert (service["Type"], service["KillMode"], service["TimeoutStartSec"]) == ("notify", "mixed", "infinity")
    assert int(service["TimeoutStopSec"]) >= _grace_period(path.name) + STOP_RESERVE
    assert int(service["RestartPreventExitStatus"]) == BreakingMigrationError.exit_code
    # The worker gives a sign of life at least this often, whatever WatchdogSec is; a busy machine delays it.
    assert int(service["WatchdogSec"]) >= 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit__is_valid(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    # systemd-analyze looks whether the program exists.
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", path.read_text()))
    instance = unit.with_name(unit.name.replace("@.", "@mail."))
    done = subprocess.run(["systemd-analyze", "verify", str(instance)], capture_output=True, text=True, check=False)
    # It also complains of other units of the machine.
    complaints = [line for line in done.stderr.splitlines() if "graphile-worker" in line or "Unknown" in line]
    assert (done.returncode, complaints) == (0, [])


def test_compose__agrees_with_the_worker() -> None:
    services = _compose()
    worker = services["worker"]
    assert int(worker["stop_grace_period"].removesuffix("s")) >= _grace_period("compose worker") + STOP_RESERVE
    how, *words = worker["healthcheck"]["test"]
    assert (how, words[:3]) == ("CMD", ["python", "-m", probe.__name__])
    assert words[3:] == [_plan("compose worker").health_file]
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert {services[name]["image"] for name in ("migrate", "web", "worker")} == {"shop"}


def test_deployment__agrees_with_the_worker() -> None:
    deployment, pod, container = _kind("Deployment"), _pod("Deployment"), _container("Deployment")
    options, plan = _options(COMMANDS["Deployment"][1:]), _plan("Deployment")
    assert pod["terminationGracePeriodSeconds"] >= plan.settings.grace_period + STOP_RESERVE
    labels = deployment["spec"]["template"]["metadata"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels["labels"]
    (port,) = container["ports"]
    assert str(port["containerPort"]) == options["metrics_port"] == labels["annotations"]["prometheus.io/port"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {each["port"] for each in probes.values()} == {port["name"]}
    paths = {name: each["path"] for name, each in probes.items()}
    assert paths == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert plan.settings.max_memory is not None
    assert limit >= plan.settings.max_memory * 1.1 + MEGABYTES_BESIDE


def test_manifests__agree_with_each_other() -> None:
    scaled = _kind("ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] == _kind("Deployment")["metadata"]["name"]
    # The number of replicas is left to the ScaledObject.
    assert "replicas" not in _kind("Deployment")["spec"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metricType"] == "Value"
    assert trigger["metadata"]["valueLocation"] == "default.backlog_seconds_per_slot"
    authentication = _kind("TriggerAuthentication")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    secrets = {each["name"] for each in authentication["spec"]["secretTargetRef"]}
    for kind in ("Deployment", "Job"):
        assert {each["secretRef"]["name"] for each in _container(kind)["envFrom"]} == secrets
    (image,) = _kind("Kustomization")["images"]
    assert _container("Job")["image"] == f"{image['name']}:{image['newTag']}"
    assert _container("Deployment")["image"] == image["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomization__has_the_image_and_every_manifest_but_the_migration() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")], capture_output=True, text=True, check=True
    )
    built = list(yaml.safe_load_all(done.stdout))
    assert {each["kind"] for each in built} == {"Deployment", "ScaledObject", "TriggerAuthentication"}
    (deployment,) = [each for each in built if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "shop:1.0"


def test_page__shows_every_example() -> None:
    page = (CHECKOUT / "docs" / "guides" / "deploying.md").read_text()
    shown = {(CHECKOUT / "docs" / "guides" / path).resolve() for path in re.findall(r"literalinclude} (\S+)", page)}
    folders = ("systemd", "docker", "kubernetes")
    assert shown == set(chain.from_iterable((DEPLOY / folder).iterdir() for folder in folders))
