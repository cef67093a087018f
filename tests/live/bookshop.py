"""The profile of the live conversation: a bookshop's assistant, whose orders are in the host application's books."""

from profiles import HostTool, Profile

profile = Profile(
    name="bookshop",
    instructions="You are the assistant of a bookshop. Answer in one sentence.",
    host_tools=[
        HostTool(
            name="find_order",
            description="Looks up an order in the shop's books.",
            parameters={
                "type": "object",
                "properties": {"order": {"type": "string", "pattern": "^[A-Z]-[0-9]{4}$", "description": "Its number."}},
                "required": ["order"],
                "additionalProperties": False,
            },
        )
    ],
)
