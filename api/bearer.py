"""Bearer tokens of an identity provider: whose they are, if they are good."""

from dataclasses import dataclass
from typing import Any

import jwt

from api.jwks import Jwk, KeySet
from settings import AccessSettings
from workflows.contracts.errors import OutlastError


class TokenRefused(OutlastError):
    """A token that proves nothing. The message says why, without any of it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a good token says."""

    tenant: str
    principal: str
    roles: tuple[str, ...]


async def read_token(text: str, settings: AccessSettings, keys: KeySet) -> Claims:
    """Checks signature, times, audience and issuer, and reads who it is. Raises TokenRefused and JwksUnavailable."""
    try:
        header = jwt.get_unverified_header(text)
    except jwt.InvalidTokenError as error:
        raise TokenRefused("the bearer token is not a JSON Web Token") from error
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in settings.algorithms:
        raise TokenRefused(f"the token's signature is not of {', '.join(settings.algorithms)} (OUTLAST_ACCESS__ALGORITHMS)")
    jwk = await keys.key(kid)
    if jwk is None:
        raise TokenRefused("the token is signed with a key that the identity provider doesn't publish")
    claims = _verified(text, jwk, algorithm, settings)
    principal = _claim(claims, settings.principal_claim)
    tenant = _claim(claims, settings.tenant_claim)
    if not isinstance(principal, str):
        raise TokenRefused(f"the token has no text in its claim {settings.principal_claim} (OUTLAST_ACCESS__PRINCIPAL_CLAIM)")
    if not isinstance(tenant, str | None):
        raise TokenRefused(f"the token has no text in its claim {settings.tenant_claim} (OUTLAST_ACCESS__TENANT_CLAIM)")
    return Claims("default" if tenant is None else tenant, principal, _roles(_claim(claims, settings.roles_claim)))


def _verified(text: str, jwk: Jwk, algorithm: str, settings: AccessSettings) -> dict[str, Any]:
    if jwk.get("alg", algorithm) != algorithm:
        raise TokenRefused("the token's signature is not of the algorithm that its key is for")
    try:
        claims: dict[str, Any] = jwt.decode(
            text,
            jwt.PyJWK(jwk, algorithm),
            algorithms=[algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_seconds,
            options={"require": ["exp", "aud", "iss"]},
        )
    except jwt.PyJWTError as error:
        raise TokenRefused(_reason(error)) from error
    return claims


def _reason(error: jwt.PyJWTError) -> str:
    """What is wrong with a token, in words of ours: the library's may quote it."""
    reasons: dict[type[jwt.PyJWTError], str] = {
        jwt.ExpiredSignatureError: "the token has expired; get a new one",
        jwt.ImmatureSignatureError: "the token is not valid yet",
        jwt.InvalidAudienceError: "the token is for another audience (OUTLAST_ACCESS__AUDIENCE)",
        jwt.InvalidIssuerError: "the token is from another issuer (OUTLAST_ACCESS__ISSUER)",
        jwt.MissingRequiredClaimError: "the token lacks one of the claims exp, aud and iss",
    }
    return reasons.get(type(error), "the token's signature does not fit")


def _claim(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name, or by a way into objects (`realm_access.roles`). None if it is not there."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _roles(said: Any) -> tuple[str, ...]:
    if isinstance(said, str):
        return tuple(said.replace(",", " ").split())
    return tuple(role for role in said if isinstance(role, str)) if isinstance(said, list) else ()


__all__ = ["Claims", "TokenRefused", "read_token"]
