"""Names that more than one process must agree on."""

import hashlib
import unicodedata
from urllib.parse import quote, unquote

SESSION_WORKFLOW = "SessionWorkflow"
ERASURE_WORKFLOW = "ErasureWorkflow"
PRINCIPAL_ERASURE_WORKFLOW = "PrincipalErasureWorkflow"

WORKFLOW_TYPES = (SESSION_WORKFLOW, ERASURE_WORKFLOW, PRINCIPAL_ERASURE_WORKFLOW)
"""Every workflow type that workers run."""

MOST_PARTY_BYTES = 255
"""Bytes of UTF-8 that a tenant or principal may have: what Temporal's search attributes and workflow ids hold, percent-encoded too."""


def party_problem(text: str) -> str | None:
    """What keeps a text from naming a tenant or principal, None if nothing does. Names are compared character by character (S17)."""
    if not text:
        return "is empty"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        return "has control characters"
    if text != text.strip():
        return "begins or ends with a space"
    if len(text.encode()) > MOST_PARTY_BYTES:
        return f"has over {MOST_PARTY_BYTES} bytes"
    return None


def erasure_workflow_id(session_uid: str) -> str:
    """The workflow that removes what is left of a session. A uid is never used twice, so neither is this id."""
    return f"erasure/{session_uid}"


def principal_erasure_workflow_id(tenant: str, principal: str) -> str:
    """The workflow that removes all that is a principal's: one at a time. A digest, so that its name tells nobody who that was."""
    named = f"{quote(tenant, safe='')}/{quote(principal, safe='')}"
    return f"principal-erasure/{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def session_workflow_id(tenant: str, session_id: str) -> str:
    """The workflow id of a session. The tenant is percent-encoded, so no two pairs share an id (S17)."""
    return f"{tenant_prefix(tenant)}{session_id}"


def tenant_prefix(tenant: str) -> str:
    """How the workflow ids of a tenant's sessions begin."""
    return f"session/{quote(tenant, safe='')}/"


def tenant_of(workflow_id: str) -> str | None:
    """The tenant of a session's workflow; None for a workflow that is no session's."""
    return named[0] if (named := session_of(workflow_id)) else None


def session_of(workflow_id: str) -> tuple[str, str] | None:
    """Tenant and session id of a session's workflow; None for a workflow that is no session's."""
    kind, _, rest = workflow_id.partition("/")
    tenant, slash, session_id = rest.partition("/")
    return (unquote(tenant), session_id) if kind == "session" and slash else None
