"""What crosses a boundary: names, update and signal payloads, activity stubs, errors, policies."""
