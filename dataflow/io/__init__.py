"""Where a pipeline starts and ends: the sources and sinks that come with the SDK, and the transforms that use them."""
