"""Access mode jwt, against an identity provider that has its own keys, its own clock and its bad days."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from settings import Settings
from tests.http.seeding import Seed
from tests.http.test_identity import bearing, guarded, unauthenticated
from tests.services import PATIENCE_SECONDS

ISSUER = "https://id.example/"
Secret = Any


class Provider:
    """Publishes keys on a socket and signs tokens with them. `asked` counts how often they were fetched."""

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[str, Secret]] = {}
        self.published: list[dict[str, Any]] = []
        self.body: bytes | None = None
        self.up = True
        self.asked = 0
        self.url = ""

    def add(self, kid: str, algorithm: str, secret: Secret, *, publish: bool = True, **fields: Any) -> None:
        self.secrets[kid] = algorithm, secret
        jwk = get_default_algorithms()[algorithm].to_jwk(secret.public_key(), as_dict=True)
        if publish:
            self.published.append({**jwk, "kid": kid, "use": "sig", **fields})

    def token(self, kid: str, headers: dict[str, Any] | None = None, algorithm: str | None = None, **claims: Any) -> str:
        known, secret = self.secrets[kid]
        said = {"sub": "alice", "aud": "outlast", "iss": ISSUER, "exp": time.time() + 3600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, secret, algorithm or known, headers={"kid": kid, **(headers or {})})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        body = self.body or json.dumps({"keys": self.published}).encode()
        status = b"200 OK" if self.up else b"500 No"
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()


RSA = rsa.generate_private_key(65537, 2048)


@asynccontextmanager
async def published() -> AsyncIterator[Provider]:
    """A provider with one key."""
    provider = Provider()
    provider.add("r1", "RS256", RSA)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks.json"
    async with server:
        yield provider


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with published() as provider:
        yield provider


@asynccontextmanager
async def trusting(settings: Settings, provider: Provider, **access: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The app that takes the provider's tokens."""
    known = {"jwks_url": provider.url, "audience": "outlast,other", "issuer": ISSUER, "leeway_seconds": 0.0, **access}
    async with guarded(settings, mode="jwt", **known) as client:
        yield client


async def listed(client: httpx.AsyncClient, token: str, **headers: str) -> list[str]:
    answer = await client.get("/api/sessions", headers=bearing(token, **headers))
    assert answer.status_code == 200, answer.text
    return sorted(line["session_id"] for line in answer.json()["sessions"])


async def test_r40_a_token_says_who_calls(settings: Settings, provider: Provider, conn: asyncpg.Connection) -> None:
    provider.add("e1", "ES256", ec.generate_private_key(ec.SECP256R1()), alg="ES256")
    provider.add("d1", "EdDSA", ed25519.Ed25519PrivateKey.generate())
    await Seed(conn, "s1").session(owner="alice")
    await Seed(conn, "s2").session(owner="Jürgen")
    await Seed(conn, "s3").session(owner="alice", tenant="acme")
    async with trusting(settings, provider, roles_claim="realm_access.roles") as client:
        for kid in provider.secrets:
            assert await listed(client, provider.token(kid)) == ["s1"]
        assert await listed(client, provider.token("r1", sub="Jürgen", aud=["x", "other"])) == ["s2"]
        assert await listed(client, provider.token("r1", tenant="acme")) == ["s3"]
        for roles, seen in ((["admin"], ["s1", "s2"]), ("user admin", ["s1", "s2"]), (["user"], []), ([{}], []), (7, [])):
            assert await listed(client, provider.token("r1", sub="root", realm_access={"roles": roles})) == seen
        service = provider.token("r1", sub="bot", realm_access={"roles": ["service"]})
        assert await listed(client, service, X_Outlast_Principal="alice") == ["s1"]
        plain = await client.get("/api/sessions", headers=bearing(provider.token("r1"), X_Outlast_Principal="bob"))
        assert plain.status_code == 403
    assert provider.asked == 1
    named: dict[str, Any] = {"principal_claim": "https://id.example/user", "tenant_claim": "org.id"}
    async with trusting(settings, provider, **named) as client:
        claims: dict[str, Any] = {"sub": None, "https://id.example/user": "alice", "org": {"id": "acme"}}
        token = provider.token("r1", **claims)
        assert await listed(client, token) == ["s3"]


async def test_r44_a_token_that_proves_nothing_is_refused(settings: Settings, provider: Provider) -> None:
    other = rsa.generate_private_key(65537, 2048)
    provider.add("pinned", "RS256", other, alg="RS512")
    good = provider.token("r1")
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, claims, signature = good.split(".")
    unsigned = jwt.encode({"sub": "alice", "aud": "outlast", "iss": ISSUER, "exp": time.time() + 3600}, "", "none", headers={"kid": "r1"})
    confused = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"r1"}').decode() + "." + claims
    mac = jwt.utils.base64url_encode(get_default_algorithms()["HS256"].sign(confused.encode(), public)).decode()
    provider.secrets["stolen"] = "RS256", other
    wrong = {
        "nonsense": "not a JSON Web Token",
        "a.b.c": "not a JSON Web Token",
        unsigned: "signature is not of",
        f"{confused}.{mac}": "signature is not of",
        provider.token("r1", algorithm="RS384"): "signature is not of",
        provider.token("pinned"): "algorithm that its key is for",
        provider.token("stolen", {"kid": "r1"}): "signature does not fit",
        f"{head}.{claims}.{signature[:-4]}AAAA": "signature does not fit",
        provider.token("stolen"): "doesn't publish",
        provider.token("r1", exp=time.time() - 2): "expired",
        provider.token("r1", nbf=time.time() + 60): "not valid yet",
        provider.token("r1", exp=None): "lacks one of",
        provider.token("r1", aud=None): "lacks one of",
        provider.token("r1", iss=None): "lacks one of",
        provider.token("r1", aud="elsewhere"): "another audience",
        provider.token("r1", iss="https://evil.example/"): "another issuer",
        provider.token("r1", sub=None): "no text in its claim sub",
        provider.token("r1", tenant=["a"]): "no text in its claim tenant",
        provider.token("r1", sub=""): "principal is empty",
        provider.token("r1", sub="a\nb"): "principal has control characters",
        provider.token("r1", tenant="x" * 256): "tenant has over 255 bytes",
    }
    async with trusting(settings, provider) as client:
        assert (await client.get("/api/sessions", headers=bearing(good))).status_code == 200
        unauthenticated(await client.get("/api/sessions"), "token")
        for token, words in wrong.items():
            answer = await client.get("/api/sessions", headers=bearing(token))
            unauthenticated(answer, words)
            assert 'error="invalid_token"' in answer.headers["www-authenticate"] and token not in answer.text


async def test_r44_a_token_without_a_key_id_needs_a_provider_with_one_key(settings: Settings, provider: Provider) -> None:
    token = jwt.encode({"sub": "alice", "aud": "outlast", "iss": ISSUER, "exp": time.time() + 3600}, RSA, "RS256")
    async with trusting(settings, provider) as client:
        assert await listed(client, token) == []
    provider.add("r2", "RS256", rsa.generate_private_key(65537, 2048))
    async with trusting(settings, provider) as client:
        unauthenticated(await client.get("/api/sessions", headers=bearing(token)), "doesn't publish")


async def test_r44_new_keys_are_fetched_when_they_are_met_and_made_up_ones_cost_nothing(settings: Settings, provider: Provider) -> None:
    async with trusting(settings, provider, jwks_pause_seconds=0.2) as client:
        assert await listed(client, provider.token("r1")) == []
        provider.add("r2", "RS256", rsa.generate_private_key(65537, 2048))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.get("/api/sessions", headers=bearing(provider.token("r2")))).status_code != 200:
                await asyncio.sleep(0.02)
        assert provider.asked == 2
    async with trusting(settings, provider, jwks_pause_seconds=60.0) as client:
        asked = provider.asked
        made_up = [provider.token("r1", {"kid": f"x{number}"}) for number in range(20)]
        answers = await asyncio.gather(*(client.get("/api/sessions", headers=bearing(token)) for token in made_up))
        assert {answer.status_code for answer in answers} == {401}
        assert provider.asked == asked + 1


async def test_while_the_provider_is_away_known_keys_go_on(settings: Settings, provider: Provider) -> None:
    unknown = provider.token("r1", {"kid": "later"})
    async with trusting(settings, provider, jwks_pause_seconds=0.05, jwks_cache_seconds=0.01) as client:
        assert await listed(client, provider.token("r1")) == []
        for body, up in ((None, False), (b"<html>", True), (b'{"keys": 7}', True), (b"[]", True)):
            provider.body, provider.up = body, up
            asked = provider.asked
            async with asyncio.timeout(PATIENCE_SECONDS):
                while provider.asked == asked:
                    assert await listed(client, provider.token("r1")) == []
                    await asyncio.sleep(0.01)
            assert await listed(client, provider.token("r1")) == []
            answer = await client.get("/api/sessions", headers=bearing(unknown))
            assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "identity_unavailable", "1")
        provider.body = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (answer := await client.get("/api/sessions", headers=bearing(unknown))).status_code == 503:
                await asyncio.sleep(0.01)
        unauthenticated(answer, "doesn't publish")


async def test_without_any_key_a_token_can_not_be_judged(settings: Settings, provider: Provider) -> None:
    token = provider.token("r1")
    provider.url = "http://127.0.0.1:1/jwks.json"
    async with trusting(settings, provider) as client:
        answer = await client.post("/api/chat", content=b"{", headers=bearing(token))
        assert (answer.status_code, answer.json()["code"]) == (503, "identity_unavailable")
        assert 1 <= int(answer.headers["retry-after"]) <= 30
