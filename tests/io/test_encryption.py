"""The codec by itself: what it binds, whom it opens for, and what happens when keys change."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.converter import WorkflowSerializationContext

from activities.db.encryption import KEY_ID, TENANT, AesGcmCodec, PayloadUnreadable, codec_of
from tests.io.keys import keys
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import session_workflow_id, tenant_of

WORD = Payload(metadata={"encoding": b"json/plain"}, data=b'"secret"')


def ring(*ids: str) -> AesGcmCodec:
    codec = codec_of(keys(*ids).keys)
    assert codec is not None
    return codec


def at(tenant: str) -> WorkflowSerializationContext:
    return WorkflowSerializationContext(namespace="default", workflow_id=session_workflow_id(tenant, "s1"))


async def test_no_two_encryptions_are_alike_and_both_open() -> None:
    first, second = await ring("a").encode([WORD, WORD])
    assert first.data != second.data and b"secret" not in first.SerializeToString()
    assert await ring("a").decode([first, second, WORD]) == [WORD] * 3


async def test_a_replaced_key_still_opens_what_it_sealed_and_the_new_one_seals() -> None:
    (old,) = await ring("a").encode([WORD])
    (new,) = await ring("b", "a").encode([WORD])
    assert (old.metadata[KEY_ID], new.metadata[KEY_ID]) == (b"a", b"b")
    assert await ring("b", "a").decode([old, new]) == [WORD, WORD]
    with pytest.raises(PayloadUnreadable, match="key a, which is not in OUTLAST_CODEC__KEYS"):
        await ring("b").decode([old])


@pytest.mark.parametrize("tenant", ["acme", "a/b", "ä:_ö", ""])
async def test_s17_a_payload_says_whose_it_is_and_opens_for_no_other_tenant(tenant: str) -> None:
    (sealed,) = await ring("a").with_context(at(tenant)).encode([WORD])
    assert sealed.metadata[TENANT] == tenant.encode()
    assert await ring("a").of("", tenant).decode([sealed]) == [WORD]
    with pytest.raises(PayloadUnreadable, match="another tenant"):
        await ring("a").of("", "other").decode([sealed])
    sealed.metadata[TENANT] = b"other"
    with pytest.raises(PayloadUnreadable, match="damaged"):
        await ring("a").of("", "other").decode([sealed])


def _flip(payload: Payload) -> None:
    payload.data = payload.data[:-1] + bytes([payload.data[-1] ^ 1])


def _cut(payload: Payload) -> None:
    payload.data = payload.data[:5]


def _rename(payload: Payload) -> None:
    payload.metadata[KEY_ID] = b"b"


@pytest.mark.parametrize("damage", [_flip, _cut, _rename])
async def test_what_was_changed_does_not_open(damage: Callable[[Payload], None]) -> None:
    (sealed,) = await ring("a").encode([WORD])
    damage(sealed)
    with pytest.raises(PayloadUnreadable, match="damaged"):
        await ring("a", "b").decode([sealed])


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (["nonsense"], "key 1 can't be read"),
        (["a:c2hvcnQ="], "key a has 5 bytes, 32 are needed"),
        (["a:" + "A" * 86 + "=="], "key a has 64 bytes, 32 are needed"),
        (["a:" + "A" * 43 + "=", "a:" + "B" * 43 + "="], "two keys have the id a"),
        (["a:AAAAA"], "key a is not base64"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_line_that_does_not_show_it(listed: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said) as caught:
        codec_of(map(SecretStr, listed))
    assert "OUTLAST_CODEC__KEYS" in str(caught.value)
    assert not any(key.partition(":")[2] in str(caught.value) for key in listed if ":" in key)


@pytest.mark.parametrize(("workflow_id", "tenant"), [("session/a%2Fb/s1", "a/b"), ("erasure/1", None), ("session/x", None), ("", None)])
def test_a_workflow_id_says_the_tenant(workflow_id: str, tenant: Any) -> None:
    assert tenant_of(workflow_id) == tenant
