"""Games that are broken on purpose, one thing each: an audit must catch every one of them."""
