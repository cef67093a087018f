"""The fields of every record that crosses a boundary, and what became of them since they were committed.

`python -m tests.architecture.contract_fields` records additions. It refuses what a running session could not read.
"""

import importlib
import inspect
import json
import sys

from pydantic import BaseModel

from tests.architecture.sources import ROOT
from workflows.model.base import Record

COMMITTED = ROOT / "tests" / "architecture" / "contract_fields.json"
Fields = dict[str, dict[str, str]]


def records() -> list[type[Record]]:
    """Every record of the model and the contracts."""
    found = []
    for folder in ("model", "contracts"):
        for path in sorted((ROOT / "workflows" / folder).glob("*.py")):
            name = f"workflows.{folder}.{path.stem}".removesuffix(".__init__")
            module = importlib.import_module(name)
            found += [
                value
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, Record) and value is not Record and value.__module__ == name
            ]
    return found


def described(record: type[BaseModel]) -> dict[str, str]:
    """Each field's type; `required` before it if there is no default."""
    return {
        name: ("required " if field.is_required() else "") + inspect.formatannotation(field.annotation)
        for name, field in record.model_fields.items()
    }


def contract_fields() -> Fields:
    """Every record's fields, by module and class."""
    return {f"{record.__module__.removeprefix('workflows.')}.{record.__name__}": described(record) for record in records()}


def incompatible(committed: Fields, now: Fields) -> list[str]:
    """What a process of the release before could not read or write."""
    found = [f"{name} was removed" for name in committed if name not in now]
    for name in committed.keys() & now.keys():
        before, after = committed[name], now[name]
        found += [f"{name}.{field} was removed" for field in before if field not in after]
        found += [f"{name}.{field} changed" for field in before if field in after and before[field] != after[field]]
        found += [f"{name}.{field} has no default" for field in after if field not in before and after[field].startswith("required ")]
    return sorted(found)


def unrecorded(committed: Fields, now: Fields) -> list[str]:
    """What is new and not committed yet."""
    found = [f"{name} is not recorded" for name in now if name not in committed]
    for name in committed.keys() & now.keys():
        found += [f"{name}.{field} is not recorded" for field in now[name] if field not in committed[name]]
    return sorted(found)


def changes(committed: Fields, now: Fields) -> list[str]:
    """Everything that differs."""
    return incompatible(committed, now) + unrecorded(committed, now)


def main() -> None:
    """Record additions, or say why not and exit 1."""
    now = contract_fields()
    wrong = incompatible(json.loads(COMMITTED.read_text()), now) if COMMITTED.exists() else []
    if wrong:
        sys.exit("\n".join(wrong))
    COMMITTED.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
