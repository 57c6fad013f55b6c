"""The managed face of the library."""
