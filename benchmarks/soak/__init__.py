"""The soak: hours of a stream while everything around it fails, and whether anything grows."""
