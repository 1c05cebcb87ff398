"""Sources and sinks: their contracts and the connectors that come with the SDK."""
