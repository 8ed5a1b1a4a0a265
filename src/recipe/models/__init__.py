"""Everything that completes chats or loads weights."""
