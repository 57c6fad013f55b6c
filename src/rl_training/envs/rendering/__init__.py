"""Images and videos of environments, without a display."""
