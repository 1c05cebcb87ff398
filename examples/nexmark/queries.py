"""The queries of Nexmark by name: what each asks, as a pipeline of functions, in columns, and as a model."""

from collections.abc import Callable, Mapping
from typing import Any

import dataflow as df
from examples.nexmark import auctions, groups_of_bids, single_bids

#: A transform from events to rows, made of how it answers.
Query = Callable[..., df.PTransform[Any, df.PCollection[Any]]]

QUERIES: Mapping[str, Query] = {
    "q0": single_bids.q0,
    "q1": single_bids.q1,
    "q2": single_bids.q2,
    "q3": auctions.q3,
    "q4": auctions.q4,
    "q5": groups_of_bids.q5,
    "q6": auctions.q6,
    "q7": groups_of_bids.q7,
    "q8": auctions.q8,
    "q9": auctions.q9,
    "q10": single_bids.q10,
    "q11": groups_of_bids.q11,
    "q12": groups_of_bids.q12,
    "q13": single_bids.q13,
    "q14": single_bids.q14,
    "q15": groups_of_bids.q15,
    "q16": groups_of_bids.q16,
    "q17": groups_of_bids.q17,
    "q18": groups_of_bids.q18,
    "q19": groups_of_bids.q19,
    "q20": auctions.q20,
    "q21": single_bids.q21,
    "q22": single_bids.q22,
}
