"""Parameter schemas of host tools, whoever wrote them: an author in a profile or a host in a request.

A schema from a request is foreign input: nothing here fetches a reference, and nothing that it contains raises out of here.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes as the name of a tool."""

_SHOWN_ERRORS = 5
_SHOWN_CHARACTERS = 300


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as a model is given it. An empty one takes no arguments in particular."""
    return dict(schema) if schema else {"type": "object", "properties": {}}


def schema_problem(schema: Any) -> str | None:
    """Why this can't be the parameter schema of a tool; None if it can."""
    if not isinstance(schema, Mapping):
        return "its parameters are not a JSON schema object"
    whole = object_schema(schema)
    if whole.get("type") != "object":
        return "its parameters are not a JSON schema of type 'object'"
    try:
        Draft202012Validator.check_schema(whole)
        return _reference_problem(whole)
    except SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path)
        return f"its parameters are not a JSON schema: {_cut(error.message)}" + (f" (at {where})" if where else "")
    except (RecursionError, ValueError) as error:
        return f"its parameters are not a JSON schema: {_cut(str(error))}"


def argument_problems(schema: Mapping[str, Any], arguments: Any) -> list[str]:
    """What is wrong with the arguments, one sentence each, the first few; empty if they fit."""
    validator = Draft202012Validator(object_schema(schema), registry=Registry())
    try:
        found = [f"{error.json_path}: {_cut(error.message)}" for error in islice(validator.iter_errors(arguments), _SHOWN_ERRORS)]
    except (RecursionError, Unresolvable, re.error) as error:
        return [f"the arguments can't be checked: {_cut(str(error))}"]
    return found


def _reference_problem(schema: dict[str, Any]) -> str | None:
    """References must stay inside the schema, and patterns must be regular expressions; the meta-schema checks neither."""
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for key, value in _members(schema):
        if key == "$ref" and isinstance(value, str):
            if not value.startswith("#"):
                return f"its parameters refer to another document ({_cut(value)})"
            try:
                resolver.lookup(value)
            except Unresolvable:
                return f"its parameters refer to what is not there ({_cut(value)})"
        patterns = [value] if key == "pattern" else list(value) if key == "patternProperties" and isinstance(value, Mapping) else []
        for pattern in patterns:
            try:
                re.compile(pattern if isinstance(pattern, str) else "")
            except re.error as error:
                return f"its parameters hold a pattern that is no regular expression ({_cut(str(error))})"
    return None


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield str(key), member
            yield from _members(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _members(member)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
