"""What the OpenAPI document promises, held against the running system by machine-made requests."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.db.api_keys import ApiKeys
from api.app import create_app
from settings import AccessSettings
from tests.http.conftest import served
from tests.models import says, script
from tests.system import running_system

LONG = bool(os.environ.get("TEST_LONG"))
HOW_MUCH = ["--max-examples", "40"] if LONG else ["--max-examples", "2", "--phases", "fuzzing"]
PATIENT = ["--suppress-health-check", "all"]
CASES = 2000 if LONG else 30
"""What a run must at least have tried."""


@asynccontextmanager
async def standing(url: str, address: str, mode: Any) -> AsyncIterator[tuple[str, list[str]]]:
    """The system in an access mode: where it is, and the headers of a caller."""
    async with running_system(url, address, script(says("hello")), access=AccessSettings(mode=mode)) as system:
        text, _ = await ApiKeys(system.kit.db).create(system.tenant, "ann", [], now=datetime.now(UTC), expires_at=None, by="test")
        async with served(create_app(system.settings, temporal_address=address)) as client:
            yield str(client.base_url), [f"Authorization: Bearer {text}"] if mode == "key" else []


async def schemathesis(folder: Path, base: str, headers: list[str]) -> tuple[int, str]:
    """Runs every check and every phase; the exit code and the report."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    arguments = [f"{base}/openapi.json", *HOW_MUCH, "--seed", "7", "--continue-on-failure", *PATIENT]
    for header in headers:
        arguments += ["--header", header]
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "run", *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


CONFIG = """
[checks]
enabled = true

# No text may hold a NUL, in any field: 422.
[generation]
allow-x00 = false

# A stream without an end would never be answered.
[[operations]]
include-path = "/api/sessions/{session_id}/events"
parameters = { "query.until" = "turn" }
checks = { positive_data_acceptance = { enabled = false } }

# Cursors are opaque, and what a file, a tool's schema, a payload or two parameters together must be is no matter of a JSON schema.
[[operations]]
include-path-regex = "^/(api/(chat|chat/stream|sessions|host-actions|metrics/sessions|sessions/[^/]+/(changes|transcript))|codec/(decode|download|encode))$"
checks = { positive_data_acceptance = { enabled = false } }
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["key", "local"] if LONG else ["key"])
async def test_the_api_keeps_what_its_document_promises(database_url: str, temporal_address: str, tmp_path: Path, mode: str) -> None:
    async with standing(database_url, temporal_address, mode) as (base, headers):
        code, report = await schemathesis(tmp_path, base, headers)
    print(report)
    assert code == 0, report
    cases = re.search(r"(\d+) generated", report)
    assert cases is not None and int(cases[1]) >= CASES, report
