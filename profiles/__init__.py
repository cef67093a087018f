"""A user's assistants, one file each, and the names that their authors import.

A profile is a Python file that defines `profile` or `profiles`; `OUTLAST_PROFILES` names it.
"""

from profiles.definition import HostTool, Profile
from profiles.functions import ToolContext, tool

__all__ = ["HostTool", "Profile", "ToolContext", "tool"]
