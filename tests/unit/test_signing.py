"""The ring of signing keys."""

import base64
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from pydantic import SecretStr

from api.signing import KeyRing, TokenExpired, TokenInvalid
from cli.environment import load_settings
from workflows.contracts.errors import SetupError

SOON = datetime.now(UTC) + timedelta(days=1)
"""Later than the last test of any run: this is read when tests are collected, long before some of them run."""
PAST = datetime.now(UTC) - timedelta(seconds=2)


def key(name: str, filling: bytes = b"k") -> SecretStr:
    return SecretStr(f"{name}:{base64.b64encode(filling * 32).decode()}")


OLD, NEW = key("old", b"o"), key("new", b"n")


def test_s60_the_first_key_signs_and_all_verify() -> None:
    before = KeyRing.of([OLD]).sign("pause token", {"sub": "a"}, SOON)
    both = KeyRing.of([NEW, OLD])
    after = both.sign("pause token", {"sub": "a"}, SOON)
    assert both.ids == ["new", "old"]
    assert both.verify("pause token", before)["sub"] == both.verify("pause token", after)["sub"] == "a"
    only = KeyRing.of([NEW])
    assert only.verify("pause token", after)["sub"] == "a"
    with pytest.raises(TokenInvalid):
        only.verify("pause token", before)


def test_s60_keys_are_found_by_their_ids() -> None:
    """Another secret under the same id is another key; the same secret under another id too."""
    token = KeyRing.of([key("a", b"x")]).sign("pause token", {}, SOON)
    for ring in (KeyRing.of([key("a", b"y")]), KeyRing.of([key("b", b"x")])):
        with pytest.raises(TokenInvalid):
            ring.verify("pause token", token)


def test_s48_the_same_words_make_the_same_token() -> None:
    ring = KeyRing.of([OLD])
    assert ring.sign("pause token", {"a": 1}, SOON) == ring.sign("pause token", {"a": 1}, SOON)


def test_s48_a_token_of_one_purpose_is_none_of_another() -> None:
    ring = KeyRing.of([OLD])
    ticket = ring.sign("stream ticket", {"sub": "a"}, SOON)
    with pytest.raises(TokenInvalid):
        ring.verify("pause token", ticket)
    # nor does it help to say so: each purpose has a key of its own
    said = jwt.decode(ticket, options={"verify_signature": False}) | {"aud": "pause token"}
    header, _, signature = ticket.split(".")
    forged = jwt.encode(said, "x" * 32, algorithm="HS256", headers={"kid": "old"}).split(".")
    with pytest.raises(TokenInvalid):
        ring.verify("pause token", ".".join((header, forged[1], signature)))


def test_s48_no_other_text_is_the_same_token() -> None:
    """Every character changed by every bit that leaves it one, and what base64 would pass over: padding, line ends, strange characters."""
    ring = KeyRing.of([OLD])
    token = ring.sign("pause token", {"sub": "a"}, SOON)
    flipped = [token[:at] + chr(ord(token[at]) ^ (1 << bit)) + token[at + 1 :] for at in range(len(token)) for bit in range(7)]
    spelled = [token[:at] + extra + token[at:] for extra in ("=", "==", "\n", "!", " ", "\u00fc") for at in (0, len(token) - 5, len(token))]
    for changed in (*flipped, *spelled, token[:-1], token.upper()):
        with pytest.raises(TokenInvalid):
            ring.verify("pause token", changed)
    assert ring.verify("pause token", token)["sub"] == "a"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_s48_a_changed_token_is_none(place: int) -> None:
    ring = KeyRing.of([OLD])
    parts = ring.sign("pause token", {"sub": "a"}, SOON).split(".")
    changed = parts[place]
    parts[place] = changed[:5] + ("A" if changed[5] != "A" else "B") + changed[6:]
    with pytest.raises(TokenInvalid):
        ring.verify("pause token", ".".join(parts))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "..", "a" * 5000, "eyJhbGciOiJIUzI1NiJ9.e30.x"])
def test_s48_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenInvalid):
        KeyRing.of([OLD]).verify("pause token", text)


def test_s48_a_token_without_a_signature_is_refused() -> None:
    said = {"aud": "pause token", "exp": 9_999_999_999}
    unsigned = jwt.encode(said, "", algorithm="none", headers={"kid": "old"})
    assert unsigned.endswith(".")
    # the configured secret itself is no key of any purpose
    for token in (unsigned, jwt.encode(said, "o" * 32, headers={"kid": "old"})):
        with pytest.raises(TokenInvalid):
            KeyRing.of([OLD]).verify("pause token", token)


def test_s48_its_time_is_over_only_when_it_is() -> None:
    ring = KeyRing.of([OLD])
    late = ring.sign("pause token", {"sub": "a"}, PAST)
    with pytest.raises(TokenExpired):
        ring.verify("pause token", late)
    assert ring.verify("pause token", late, expired=True)["sub"] == "a"
    with pytest.raises(TokenInvalid):
        ring.verify("stream ticket", late)
    for fraction in (0, 1, 400_000, 999_999):
        until = SOON.replace(microsecond=fraction)
        assert ring.verify("pause token", ring.sign("pause token", {}, until))["exp"] >= until.timestamp(), "no token ends early"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ([], "no signing key"),
        (["nothing"], "key 1 can't be read"),
        ([OLD.get_secret_value(), ":eHh4"], "key 2 can't be read"),
        (["a:eHh4eHh4"], "key a has 6 bytes"),
        (["a:eHh4eHh4e"], "key a is not base64"),
        ([OLD.get_secret_value(), OLD.get_secret_value()], "two keys have the id old"),
    ],
)
def test_s60_a_key_that_is_none_stops_the_start_and_is_not_shown(keys: list[str], says: str) -> None:
    with pytest.raises(SetupError, match=says) as caught:
        KeyRing.of([SecretStr(text) for text in keys])
    assert not any(secret in str(caught.value) for text in keys if (secret := text.partition(":")[2]))


def test_s60_keys_are_not_shown_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_SIGNING__KEYS", f"{NEW.get_secret_value()}, {OLD.get_secret_value()}")
    settings = load_settings()
    assert KeyRing.of(settings.signing.keys).ids == ["new", "old"]
    assert NEW.get_secret_value().partition(":")[2] not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_s60_both_alphabets_of_base64_are_taken() -> None:
    secret = bytes(range(224, 256))
    rings = [
        KeyRing.of([SecretStr(f"a:{encode(secret).decode().rstrip(end)}")])
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for end in ("=", "")
    ]
    assert len({ring.sign("pause token", {}, SOON) for ring in rings}) == 1
