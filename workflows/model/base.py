"""The base of every record that travels between processes or is kept in workflow state."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record. Unknown fields are tolerated and dropped, so that older code reads newer payloads. Infinity and NaN are no numbers: JSON
    has no word for them, and who is handed null in their place could read no record.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=(), allow_inf_nan=False)
