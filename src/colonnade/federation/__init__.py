"""How a federation stays up: its members, what they propose to each other, and the processes that wait for it."""
