"""Whether a namespace knows Outlast's search attributes. A workflow that sets unknown ones would get stuck."""

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.contracts.naming import SEARCH_ATTRIBUTES


async def registered(client: Client) -> bool:
    """True if all of them are registered in the client's namespace; False also if the server won't say."""
    try:
        answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    except RPCError:
        return False
    return set(SEARCH_ATTRIBUTES) <= set(answer.custom_attributes)
