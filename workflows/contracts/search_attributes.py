"""What an operator can query sessions by."""

from datetime import datetime

from temporalio.common import SearchAttributeKey

TENANT = SearchAttributeKey.for_keyword("OutlastTenant")
PRINCIPAL = SearchAttributeKey.for_keyword("OutlastPrincipal")
PROFILE = SearchAttributeKey.for_keyword("OutlastProfile")
STATUS = SearchAttributeKey.for_keyword("OutlastStatus")
TURN = SearchAttributeKey.for_int("OutlastTurn")
PENDING_TOOL = SearchAttributeKey.for_keyword("OutlastPendingTool")
WAITING_SINCE = SearchAttributeKey.for_datetime("OutlastWaitingSince")

SEARCH_ATTRIBUTES: dict[str, SearchAttributeKey[str] | SearchAttributeKey[int] | SearchAttributeKey[datetime]] = {
    key.name: key for key in (TENANT, PRINCIPAL, PROFILE, STATUS, TURN, PENDING_TOOL, WAITING_SINCE)
}
"""All of them, by name. Registered by `outlast dev` and `outlast migrate`."""
