"""What never shows: keys, tokens and passwords, in whatever is logged or answered."""

import logging
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db.api_keys import ApiKeys
from activities.db.pool import Database
from activities.db.status import schema_status
from api.app import create_app
from cli.doctor import run_doctor
from cli.environment import load_settings
from settings import AccessSettings, DatabaseSettings, Settings
from tests.http.conftest import NOWHERE, served
from tests.http.test_jwt import ISSUER, published
from workflows.contracts.errors import SetupError

PASSWORD = "hunter2-of-the-database"
LOST = f"postgresql://outlast:{PASSWORD}@127.0.0.1:1/none"
PUBLIC_PART = re.compile(r"^olk_[0-9a-f]{12}_|^.*\.")
"""What comes before the secret itself: a key's id, a token's header and claims. The secret may have any of these characters too."""
REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "/api/sessions", {}),
    ("GET", "/api/sessions/absent", {}),
    ("GET", "/api/sessions?limit=0", {}),
    ("POST", "/api/chat", {"content": b"{"}),
    ("POST", "/api/chat", {"json": {"content": "x", "nonsense": 1}}),
    ("POST", "/api/chat", {"json": {"content": "x", "session_id": "s1"}, "headers": {"Idempotency-Key": "k"}}),
    ("POST", "/api/chat", {"json": {}, "headers": {"Origin": "https://evil.example"}}),
    ("GET", "/api/sessions", {"headers": {"X-Outlast-Principal": "somebody-else"}}),
    ("GET", "/nothing", {}),
    ("PUT", "/api/chat", {}),
    ("GET", "/health", {}),
    ("GET", "/health/ready", {}),
)


async def ask_everything(settings: Settings, secrets: list[str]) -> list[str]:
    """What the api answers to each secret, as it is and mangled."""
    said = []
    async with served(create_app(settings, temporal_address=NOWHERE)) as client:
        for secret in (*secrets, secrets[0] + "x", secrets[0].upper(), "Basic " + secrets[0]):
            for method, path, options in REQUESTS:
                headers = {"Authorization": f"Bearer {secret}", **options.get("headers", {})}
                answer = await client.request(method, path, **{**options, "headers": headers})
                said.append(f"{answer.status_code} {dict(answer.headers)} {answer.text}")
    return said


def hidden(secrets: list[str], said: list[str], log: pytest.LogCaptureFixture) -> None:
    assert len(said) > 40 and len({line[:3] for line in said}) >= 5, "too little was tried"
    everything = "\n".join((*said, log.text, *(str(vars(record)) for record in log.records)))
    for secret in secrets:
        for part in (secret, PUBLIC_PART.sub("", secret)):
            assert len(part) >= 16, "too short to be looked for"
            assert part not in everything, next(line for line in everything.splitlines() if part in line)[:500]


async def test_no_key_and_no_password_is_logged_or_answered(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    database = await Database.open(settings.database)
    keys = [
        (await ApiKeys(database).create("default", "ann", roles, now=datetime.now(UTC), expires_at=None, by="t"))[0]
        for roles in ([], ["admin"])
    ]
    await database.close()
    access = AccessSettings(mode="key", rate_limit="25/minute")
    said = await ask_everything(settings.model_copy(update={"access": access}), keys)
    lost = settings.model_copy(update={"access": access, "database": DatabaseSettings(url=LOST)})
    said += await ask_everything(lost, keys)
    hidden([*keys, PASSWORD], said, caplog)


async def test_no_token_is_logged_or_answered(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with published() as provider:
        tokens = [
            provider.token("r1"),
            provider.token("r1", exp=1),
            provider.token("r1", {"kid": "nobody"}),
            provider.token("r1", sub="a\nb"),
        ]
        for url in (
            provider.url,
            "http://fetcher:hunter2-of-the-keys@127.0.0.1:1/keys",
            provider.url.replace("//", f"//fetcher:{PASSWORD}@"),
        ):
            provider.up = url == provider.url
            access = AccessSettings(mode="jwt", jwks_url=url, issuer=ISSUER, audience=["outlast"], rate_limit="25/minute")
            said = await ask_everything(settings.model_copy(update={"access": access}), tokens)
            hidden([*tokens, PASSWORD, "hunter2-of-the-keys"], said, caplog)


async def test_no_password_is_in_what_commands_say(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    said: list[str] = []
    for url in (
        LOST,
        f"postgresql://nobody:{PASSWORD}@{database_url.partition('@')[2]}",
        f"postgresql://u:{PASSWORD}@[::1/x",
        f"{PASSWORD}",
    ):
        said.append(str(await schema_status(DatabaseSettings(url=url))))
        monkeypatch.setenv("OUTLAST_DATABASE__URL", url)
        await run_doctor(said.append)
    for name in ("OUTLAST_SIGNING__KEYS", "OUTLAST_TOKEN", "OUTLAST_ACCESS__JWKS_URL"):
        monkeypatch.setenv(name, PASSWORD)
        monkeypatch.setenv("OUTLAST_ACCESS__MODE", "jwt")
        with pytest.raises((SetupError, ValueError)) as refused:
            create_app(load_settings())
        said.append(str(refused.value))
    assert len(said) > 20
    assert not any(PASSWORD in line for line in said), said
