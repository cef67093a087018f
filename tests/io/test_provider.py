"""The scripted provider in a process of its own, as chaos tests use it."""

import asyncio
import json
import sys
from pathlib import Path

import httpx

from tests.provider import fails, says


async def test_provider_runs_by_itself_and_tells_what_it_was_asked(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([fails(500), says("fine"), says("rule", when="special")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.provider", "--script", str(script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        async with httpx.AsyncClient(base_url=url.removesuffix("/v1"), timeout=60) as client:
            statuses = [(await client.post("/v1/chat/completions", json=_asked("hi"))).status_code for _ in range(2)]
            special = (await client.post("/v1/chat/completions", json=_asked("something special"))).json()
            await client.post("/_script", json={"script": [says("new")]})
            renewed = (await client.post("/v1/chat/completions", json=_asked("hi"))).json()
            seen = (await client.get("/_requests")).json()
    finally:
        process.terminate()
        await process.wait()
    assert statuses == [500, 200]
    assert special["choices"][0]["message"]["content"] == "rule"
    assert renewed["choices"][0]["message"]["content"] == "new"
    assert [request["finished"] for request in seen] == [True] * 4


def _asked(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}
