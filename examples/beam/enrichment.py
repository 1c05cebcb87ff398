"""Enrichment: orders, each with what a catalogue knows about its product.

The catalogue here is a table in memory behind an asynchronous function; it may as well be a request by HTTP.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import dataflow as df
from examples.beam.running import main

ORDERS = (
    {"order": 1, "product": "lamp"},
    {"order": 2, "product": "chair"},
    {"order": 3, "product": "lamp"},
    {"order": 4, "product": "unicorn"},
)
CATALOGUE = {"lamp": {"price": 30, "room": "hall"}, "chair": {"price": 80, "room": "kitchen"}}


async def products(names: Sequence[str]) -> list[dict[str, Any]]:
    """What the catalogue has of some products; of one that it does not have, nothing."""
    await asyncio.sleep(0.001)
    return [CATALOGUE.get(name, {}) for name in names]


def build(p: df.Pipeline) -> df.PCollection[tuple[int, str, int | None]]:
    """Orders with their products and prices."""
    enriched = df.Enrichment(
        products, lambda order: order["product"], batch_size=10, cache_ttl="10 minutes"
    )
    orders = p | df.Create(ORDERS) | enriched
    return orders | df.Map(lambda order: (order["order"], order["product"], order.get("price")))


if __name__ == "__main__":
    main(build)
