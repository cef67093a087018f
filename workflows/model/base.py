"""The base of every record that travels between processes or is kept in workflow state."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record. Unknown fields are tolerated and dropped, so that older code reads newer payloads."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())
