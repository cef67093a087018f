"""Outlast's search attributes in a namespace: what is missing, and adding it. A workflow that sets unknown ones would get stuck."""

from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.contracts.search_attributes import SEARCH_ATTRIBUTES


async def registered(client: Client) -> bool:
    """True if all of them are registered in the client's namespace; False also if the server won't say."""
    try:
        return not await missing(client)
    except RPCError:
        return False


async def missing(client: Client) -> list[str]:
    """Those that the client's namespace doesn't know. Raises RPCError."""
    answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    return sorted(set(SEARCH_ATTRIBUTES) - set(answer.custom_attributes))


async def register(client: Client) -> list[str]:
    """Registers the missing ones in the client's namespace and returns them. Raises RPCError."""
    names = await missing(client)
    if names:
        request = AddSearchAttributesRequest(namespace=client.namespace)
        for name in names:
            request.search_attributes[name] = SEARCH_ATTRIBUTES[name].indexed_value_type.value  # type: ignore[assignment]
        await client.operator_service.add_search_attributes(request)
    return names
