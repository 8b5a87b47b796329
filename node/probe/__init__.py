"""The node probe: one JSON document about a GPU host, in bounded time, with *unknown* where it cannot tell."""

VERSION = 1
"""Of the document. A reader refuses what it does not know."""
