"""`outlast export`: what it writes, what it says, and that it is on the record."""

import asyncio
import json
import os
from pathlib import Path

import asyncpg

from benchmarks.conversations import write_conversation
from tests.chaos.processes import Programs
from tests.services import as_runtime


async def test_s78_export_writes_a_whole_file_or_none(programs: Programs, database_url: str, folder: Path) -> None:
    conn = await asyncpg.connect(database_url)
    env, file = {"OUTLAST_DATABASE__URL": as_runtime(database_url), "LOGNAME": "ada"}, folder / "s1.jsonl"
    await write_conversation(conn, "s1", 60)
    code, output = await programs.run("export", "s1", env=env)
    assert code == 0
    rows = [json.loads(line) for line in output.splitlines()]
    assert sum(row["steering"] is None for row in rows) == 60 and rows[0]["content"] == "words number 0"
    code, output = await programs.run("export", "s1", "--leaf", "m3", "-o", str(file), env=env)
    assert (code, output) == (0, "")
    path = [row for row in map(json.loads, file.read_text().splitlines()) if row["steering"] is None]
    assert [row["id"] for row in path] == ["m0", "m1", "m2", "m3"]
    for wrong in (["s1", "--tenant", "other"], ["s1", "-o", str(folder / "nowhere" / "x")]):
        code, output = await programs.run("export", *wrong, env=env)
        assert code == 1 and len(output.splitlines()) == 1 and output.startswith("outlast: "), output
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    running = asyncio.create_task(programs.run("export", "s1", "--leaf", "m3", "-o", str(pipe), env=env))
    assert await asyncio.to_thread(pipe.read_text) == file.read_text()
    assert (await running, pipe.is_fifo()) == ((0, ""), True)
    acts = await conn.fetch("select principal, facts from audit where action = 'export' order by at")
    assert {act["principal"] for act in acts} == {"operator:ada"}
    assert [json.loads(act["facts"])["leaf_id"] for act in acts] == [None, "m3", None, "m3"]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".s1")] == []
    await conn.close()
