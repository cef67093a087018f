"""Signed words that callers carry about: stream tickets and pause tokens. They are JSON Web Tokens (HS256) under a ring of keys.

Each purpose has keys of its own, derived from the configured ones, so that a token of one kind never passes for one of another.
"""

import hmac
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import jwt
from jwt.utils import base64url_decode, base64url_encode
from pydantic import SecretStr

from activities.db.keyring import read_keys
from workflows.contracts.errors import OutlastError, SetupError

Purpose = Literal["stream ticket", "pause token"]

SETTING = "OUTLAST_SIGNING__KEYS"

LEAST_BYTES = 32
"""Bytes that a secret must have: as many as the digest that it keys."""

_ALGORITHM = "HS256"


class TokenInvalid(OutlastError):
    """No token of this purpose and this installation."""


class TokenExpired(TokenInvalid):
    """A token whose time is over."""


class KeyRing:
    """The signing keys of an api by their ids. The first one signs, every one verifies, so that keys can be replaced while tokens are about."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._secrets = dict(secrets)
        self._signer = next(iter(self._secrets))

    @classmethod
    def of(cls, keys: Iterable[SecretStr]) -> "KeyRing":
        """The ring of configured keys. Raises SetupError, which shows none of them, if there is none or one can't be used (S60)."""
        secrets = read_keys(SETTING, keys, least=LEAST_BYTES)
        if not secrets:
            raise SetupError(
                f"no signing key: make one with `openssl rand -base64 {LEAST_BYTES}` and write it as `id:base64`, such as {SETTING}=a:…; "
                "every API of one installation needs the same"
            )
        return cls(secrets)

    @property
    def ids(self) -> list[str]:
        """The ids of the keys, the one that signs first."""
        return list(self._secrets)

    def sign(self, purpose: Purpose, claims: Mapping[str, Any], expires: datetime) -> str:
        """A token that `verify` opens until `expires`. The same words under the same key make the same token."""
        # whole seconds, rounded up: a token never ends early
        said = {"aud": purpose, **claims, "exp": math.ceil(expires.timestamp())}
        return jwt.encode(said, self._key(self._signer, purpose), algorithm=_ALGORITHM, headers={"kid": self._signer})

    def verify(self, purpose: Purpose, token: str, *, expired: bool = False) -> dict[str, Any]:
        """The claims of a token, also of one whose time is over if `expired` allows that.

        Raises TokenInvalid for what is no token of this purpose, or was changed, or was signed with a key that is not in the ring;
        TokenExpired for one whose time is over.
        """
        try:
            signer = jwt.get_unverified_header(token).get("kid")
            if signer not in self._secrets:
                raise jwt.InvalidKeyError("not a key of this ring")
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(signer, purpose),
                algorithms=[_ALGORITHM],
                audience=purpose,
                options={"require": ["aud", "exp"], "verify_exp": not expired},
            )
            _check_spelling(token)
        except jwt.ExpiredSignatureError as error:
            raise TokenExpired(f"the time of this {purpose} is over") from error
        except (jwt.PyJWTError, ValueError) as error:
            raise TokenInvalid(f"this is no {purpose} of this installation") from error
        return claims

    def _key(self, name: str, purpose: Purpose) -> bytes:
        return hmac.digest(self._secrets[name], f"outlast {purpose}".encode(), "sha256")


def _check_spelling(token: str) -> None:
    """Refuses other spellings of a signature: base64 takes padding, strange characters and idle bits in its stride, so a changed token would pass.

    What is before the signature is signed as it is spelled. Raises jwt.DecodeError.
    """
    signature = token.rpartition(".")[2].encode()
    if base64url_encode(base64url_decode(signature)) != signature:
        raise jwt.DecodeError("the signature is not spelled as it was signed")
