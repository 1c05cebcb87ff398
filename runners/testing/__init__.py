"""Tools for testing pipelines and adapters, shipped: conformance suites, faults, the simulator."""
