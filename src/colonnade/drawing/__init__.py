"""How is a result drawn? Charts as inline SVG, for reports, the console and notebooks alike."""
