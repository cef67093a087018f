"""Whatever a request calls is a coroutine function: FastAPI gives any other to a thread, and each such hop costs more than the call."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from inspect import iscoroutinefunction
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

import api.routes


def called(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    """An endpoint, or a dependency, with all that it depends on."""
    assert dependant.call
    yield dependant.call
    for inner in dependant.dependencies:
        yield from called(inner)


def in_threads(routers: Iterable[APIRouter]) -> set[str]:
    """What of them would run in a thread."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return {call.__qualname__ for route in routes for call in called(route.dependant) if not iscoroutinefunction(call)}


def test_no_request_waits_for_a_thread() -> None:
    modules = [importlib.import_module(f"api.routes.{each.name}") for each in pkgutil.iter_modules(api.routes.__path__)]
    assert in_threads(module.router for module in modules) == set()


def test_a_dependency_that_would_wait_for_one_is_found() -> None:
    router = APIRouter()

    def inner() -> int:
        return 1

    async def outer(number: Annotated[int, Depends(inner)]) -> int:
        return number

    @router.get("/")
    async def endpoint(number: Annotated[int, Depends(outer)]) -> int:
        return number

    assert [name.rpartition(".")[2] for name in in_threads([router])] == ["inner"]
