"""The codec server of the Temporal Web UI and CLI: shows an operator what the histories of a tenant's sessions say.

Both know one contract: payloads go to `/decode` or `/encode` below an address that the operator sets, and come back in their order.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from google.protobuf import json_format
from pydantic import BaseModel, ConfigDict, Field
from temporalio.api.common.v1 import Payload, Payloads

from activities.db.payloads import PayloadGone, is_reference
from api.access import CallerDep
from api.codec import UNREADABLE, Codec
from api.deps import ApiDep
from api.errors import RequestRefused
from api.intake import StrictRoute
from api.openapi import problems

router = APIRouter(prefix="/codec", tags=["operators"], route_class=StrictRoute)


class CodecPayload(BaseModel):
    """A payload as Temporal's JSON writes it: bytes in base64. `externalPayloads` says how large what it refers to is."""

    model_config = ConfigDict(extra="ignore")

    metadata: dict[str, str] = {}
    data: str = ""
    externalPayloads: list[dict[str, Any]] = []  # noqa: N815


class CodecPayloads(BaseModel):
    """Payloads to read or to write, and the answer in their order."""

    model_config = ConfigDict(extra="ignore")

    payloads: list[CodecPayload] = Field(default=[], max_length=10_000)


async def codec_of(api: ApiDep, caller: CallerDep) -> Codec:
    """The codec of the caller's tenant. Raises RequestRefused (403) for a caller who is no admin."""
    if not caller.is_admin:
        raise RequestRefused(403, "payloads are read and written by admins of their tenant")
    return Codec(api.codec, api.storage, caller.tenant)


CodecDep = Annotated[Codec, Depends(codec_of)]
PreserveQuery = Annotated[
    bool, Query(alias="preserveStorageRefs", description="Leaves references to large payloads as they are, to be asked for at /download.")
]


@router.post("/decode", responses=problems(401, 403, 413, 415, 422, 503))
async def decode(body: CodecPayloads, codec: CodecDep, preserve: PreserveQuery = False) -> CodecPayloads:
    """Payloads in plain text. One that is another tenant's, damaged or gone comes back as it was."""
    return _answer([payload if preserve and is_reference(payload) else await codec.shown(payload) for payload in _taken(body)])


@router.post("/download", responses=problems(401, 403, 404, 413, 415, 422, 503))
async def download(body: CodecPayloads, codec: CodecDep) -> CodecPayloads:
    """Large payloads that histories refer to, in plain text. All must be such references, and each be there."""
    references = _taken(body)
    if not all(map(is_reference, references)):
        raise RequestRefused(422, "a payload is no reference to one that is kept elsewhere")
    try:
        return _answer([await codec.read(reference) for reference in references])
    except (PayloadGone, *UNREADABLE) as error:
        raise RequestRefused(404, "there is no such payload that can be read") from error


@router.post("/encode", responses=problems(401, 403, 413, 415, 422, 503))
async def encode(body: CodecPayloads, codec: CodecDep) -> CodecPayloads:
    """Payloads as sessions of the caller's tenant keep them: encrypted, if there is a key."""
    return _answer(await codec.kept(_taken(body)))


def _taken(body: CodecPayloads) -> list[Payload]:
    try:
        return list(json_format.ParseDict(body.model_dump(), Payloads()).payloads)
    except json_format.ParseError as error:
        raise RequestRefused(422, "a payload is as Temporal's JSON writes it: metadata and data in base64") from error


def _answer(payloads: list[Payload]) -> CodecPayloads:
    said: dict[str, Any] = json_format.MessageToDict(Payloads(payloads=payloads))
    return CodecPayloads.model_validate(said)
