"""Side-by-side measurements of abide and other tools that run commands for agents."""
