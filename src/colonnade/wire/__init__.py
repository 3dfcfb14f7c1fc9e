"""How bytes reach the right peer, unread by others."""
