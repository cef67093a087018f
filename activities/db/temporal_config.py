"""Temporal's own client configuration: its `TEMPORAL_*` variables, and the TOML profile that they name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig

from workflows.contracts.errors import SetupError

_EXCERPT = re.compile(r"\s*\d*\s*\|")
"""A line of an error that shows one of the file, which may be that of a key."""


def client_profile() -> ClientConfigProfile:
    """What the configuration says. Raises SetupError, without a word of the file, if it can't be read."""
    with _told():
        return ClientConfigProfile.load()


def connect_config() -> ClientConnectConfig:
    """The same as what a client connects with, keys and certificates read. Raises SetupError as `client_profile` does."""
    profile = client_profile()
    with _told():
        return profile.to_client_connect_config()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        told = [line.strip() for line in str(error).splitlines() if not _EXCERPT.match(line)]
        raise SetupError(f"Temporal's client configuration: {': '.join(filter(None, told))}") from error


__all__ = ["client_profile", "connect_config"]
