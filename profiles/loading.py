"""From settings to profiles: the shipped ones and those that `OUTLAST_PROFILES` names."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from profiles.checking import check_profile
from profiles.definition import Profile
from settings import Settings
from workflows.contracts.errors import SetupError

_SHIPPED = ("profiles.default", "profiles.demo")


class Profiles(Mapping[str, Profile]):
    """Profiles by name. `default` is the one of sessions that name none."""

    def __init__(self, by_name: Mapping[str, Profile], default: str) -> None:
        self._by_name = dict(by_name)
        self.default = self._by_name[default]

    def __getitem__(self, name: str) -> Profile:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def default_profile(settings: Settings) -> str:
    """The profile of sessions that name none: the scripted model comes with tools that show what it can do."""
    return settings.profile or ("demo" if settings.model == "demo" else "default")


def load_profiles(settings: Settings) -> Profiles:
    """Imports and checks every profile.

    Raises SetupError, in one line, for a module that can't be imported or defines no profile, for a mistake in a profile, for
    two profiles of one name and for a default that there is not.
    """
    origins: dict[str, str] = {}
    found: dict[str, Profile] = {}
    for source in (*_SHIPPED, *settings.profiles):
        for profile in _profiles_of(_imported(source), source):
            check_profile(profile)
            if profile.name in found:
                raise SetupError(f"profile {profile.name!r} is defined twice: in {origins[profile.name]} and in {source}")
            found[profile.name], origins[profile.name] = profile, source
    default = default_profile(settings)
    if default not in found:
        raise SetupError(f"OUTLAST_PROFILE: there is no profile {default!r}; there are {', '.join(sorted(found))}")
    return Profiles(found, default)


def _imported(source: str) -> ModuleType:
    try:
        return _from_file(Path(source).expanduser().resolve()) if _is_path(source) else _from_name(source)
    except SetupError:
        raise
    except (Exception, SystemExit) as error:
        raise SetupError(" ".join(f"OUTLAST_PROFILES: {source} can't be imported: {type(error).__name__}: {error}".split())) from error


def _is_path(source: str) -> bool:
    return source.endswith(".py") or "/" in source or "\\" in source


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SetupError(f"OUTLAST_PROFILES: there is no file {path}")
    name = f"outlast_profile_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SetupError(f"OUTLAST_PROFILES: {path} is not a Python file")
    _allow_imports_from(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type hints of its functions are resolved through this entry
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_name(name: str) -> ModuleType:
    _allow_imports_from(Path.cwd())
    return importlib.import_module(name)


def _allow_imports_from(folder: Path) -> None:
    """At the end of the path, so that a file in a user's folder never hides a module of ours."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _profiles_of(module: ModuleType, source: str) -> list[Profile]:
    one: Any = getattr(module, "profile", None)
    many: Any = getattr(module, "profiles", None)
    if one is None and many is None:
        raise SetupError(f"OUTLAST_PROFILES: {source} defines neither `profile` nor `profiles`")
    found = ([] if one is None else [one]) + (list(many) if isinstance(many, list | tuple) else [] if many is None else [many])
    for candidate in found:
        if not isinstance(candidate, Profile):
            raise SetupError(f"OUTLAST_PROFILES: {source}: {type(candidate).__name__!r} is not a Profile")
    return list({id(profile): profile for profile in found}.values())
