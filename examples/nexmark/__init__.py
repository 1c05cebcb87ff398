"""Nexmark, the benchmark of auctions: events, the queries as models and as pipelines, and a command that runs them.

Begin with `examples.nexmark.queries`; docs/nexmark.md says what each query asks.
"""
