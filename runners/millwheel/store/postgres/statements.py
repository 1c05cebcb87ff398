"""A `Production` as the statements of its transaction, packed and ready to send.

Everything that can go wrong on this side (a value that does not fit, an unknown range) goes wrong here, before the
first byte of the transaction is on the wire.
Only statements that have work are made; their order is fixed, fences first.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from struct import Struct

from runners.errors import StoreError
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import CellWrite, Production, Reshape, TimerWrite
from runners.millwheel.store import events
from runners.millwheel.store.guards import escape_text, escaped_event, escaped_lineage
from runners.millwheel.store.postgres.arrays import (
    BoolArray,
    ByteaArray,
    Int4Array,
    Int8Array,
    PackedArray,
    TextArray,
)
from runners.millwheel.store.postgres.catalog import JobIds, to_signed
from runners.millwheel.store.postgres.portions import PORTION_BYTES_MAX, portions
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.tables import CopyRows, Statement, TableStatements
from runners.stored.lineage import elements_text, origin_text

#: A message to the server, with all its parameters, has less than a gigabyte.
STATEMENT_BYTES_MAX = (1 << 30) - (1 << 20)
#: Number, token and bundle of one range in a cut.
_OF_CUT = Struct("<iqq")


def commit_statements(
    production: Production,
    ids: JobIds,
    tables: TableStatements,
    portion_bytes: int = PORTION_BYTES_MAX,
) -> list[Statement]:
    """All statements of the transaction, in their order.

    Args:
        production: what is committed.
        ids: the numbers that the database has for the job and its ranges.
        tables: composes the statements for result tables, for the connection on which they will be sent.
        portion_bytes: rows that take more are divided into several statements.

    Raises:
        StoreError: the production names a range that the job does not have.
    """
    statements: list[Statement] = [_fences(production, ids)]
    statements += _cells(production.cells, ids, portion_bytes)
    statements += _timers(production.timers, ids)
    statements += _journal(production, ids, portion_bytes)
    statements += _channels(production, ids, portion_bytes)
    statements += _signal_marks(production, ids)
    statements += _percentiles(production, ids)
    statements += _firing(production, ids)
    statements += _reshape(production, ids)
    statements += _record_ids(production, ids)
    statements += _late(production, ids, portion_bytes)
    statements += _dead(production, ids, portion_bytes)
    statements += _metrics(production, ids)
    statements += _lineage(production, ids, portion_bytes)
    for write in production.tables:
        statements += tables.write(write, portion_bytes)
    return statements


def check_messages(production: Production, statements: Sequence[Statement]) -> None:
    """Refuse what Postgres cannot take in: it would end the connection, without an error about the reason.

    Args:
        production: what the statements commit; names the job and the computation for the error.
        statements: all of its transaction; COPY is sent in parts, and is never too large.

    Raises:
        StoreError: a statement is too large; names the computation whose step it is.
    """
    for statement in statements:
        if isinstance(statement, CopyRows):
            continue
        size = sum(map(len, statement[1].values()))
        if size > STATEMENT_BYTES_MAX:
            largest = max(statement[1], key=lambda name: len(statement[1][name]))
            raise StoreError(
                f"a step of {production.fences[0].range_id} of job {production.job!r} is too large for Postgres",
                detail=f"it writes {size >> 20:,} MB at once, most of it {largest}; Postgres takes in "
                f"{STATEMENT_BYTES_MAX >> 20:,} MB",
                hint="nothing was written; are single records, or the values of one key, so large? store "
                "what is large elsewhere, and keep its address in the record",
            )


def _fences(production: Production, ids: JobIds) -> Statement:
    """In the order of range ids, as `acquire` locks them too: so no two transactions wait for each other."""
    fences = sorted((ids.range(fence.range_id).number, fence) for fence in production.fences)
    range_ids = [fence.range_id for _, fence in fences]
    return QUERIES["take_fences"], {
        "range_ids": Int4Array.of([number for number, _ in fences]),
        "tokens": Int8Array.of([fence.token for _, fence in fences]),
        "bundles": Int8Array.of([fence.bundle for _, fence in fences]),
        "watermarks_us": Int8Array.of([production.watermarks_us.get(r) for r in range_ids]),
        "positions": ByteaArray.of([production.positions.get(r) for r in range_ids]),
        "are_finished": BoolArray.of([r in production.finished for r in range_ids]),
        **_relied_on(production, ids),
        "cuts": ByteaArray.of([packed_cut(production.cut, ids)] if production.cut else []),
    }


def _cells(cells: Sequence[CellWrite], ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    writes: Sequence[tuple[str, int, bytes, bytes | None]] = cells
    if len({cell[:3] for cell in cells}) < len(cells):
        # The last write of a cell wins; two in one statement would be an error to Postgres.
        writes = [(*key, value) for key, value in {cell[:3]: cell[3] for cell in cells}.items()]
    upserts = [write for write in writes if write[3] is not None]
    deletes = [write for write in writes if write[3] is None]
    for some in portions(upserts, lambda write: len(write[3] or b""), portion_bytes):
        computations, key_hashes, cell_keys, values = zip(*some, strict=True)
        parameters = _keys(computations, key_hashes, cell_keys, ids)
        parameters["values"] = ByteaArray.of(values)
        statements.append((ids.queries["upsert_cells"], parameters))
    if deletes:
        computations, key_hashes, cell_keys, _ = zip(*deletes, strict=True)
        parameters = _keys(computations, key_hashes, cell_keys, ids)
        statements.append((ids.queries["delete_cells"], parameters))
    return statements


def _timers(timers: Sequence[TimerWrite], ids: JobIds) -> list[Statement]:
    latest = {timer[:5]: timer[5] for timer in timers}
    statements: list[Statement] = []
    for query, is_set in (("delete_timers", False), ("upsert_timers", True)):
        keys = [key for key, fire_us in latest.items() if (fire_us is not None) is is_set]
        if not keys:
            continue
        computations, key_hashes, cell_keys, tags, domains = zip(*keys, strict=True)
        parameters = _keys(computations, key_hashes, cell_keys, ids)
        parameters["tags"] = ByteaArray.of(tags)
        parameters["domains"] = TextArray.of(domains)
        if is_set:
            parameters["fires_us"] = Int8Array.of([latest[key] for key in keys])
        statements.append((ids.queries[query], parameters))
    return statements


def _journal(production: Production, ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    bundles = {fence.range_id: fence.bundle for fence in production.fences}
    if production.compacted:
        parameters: dict[str, PackedArray] = {
            **_fenced(production.compacted, production, ids),
            "compacted": Int8Array.of(list(production.compacted.values())),
        }
        statements.append((ids.queries["compact_journal"], parameters))
    first = 0
    for some in portions(production.journal, lambda entry: len(entry.payload), portion_bytes):
        range_ids, cells, payloads = zip(*some, strict=True)
        parameters = {
            "range_ids": Int4Array.of([ids.range(range_id).number for range_id in range_ids]),
            "bundles": Int8Array.of([bundles[range_id] for range_id in range_ids]),
            "parts": Int4Array.of(range(first, first + len(some))),
            "cells": Int4Array.of(cells),
            "payloads": ByteaArray.of(payloads),
        }
        first += len(some)
        statements.append((ids.queries["append_journal"], parameters))
    return statements


def _keys(
    computations: Sequence[str], key_hashes: Sequence[int], cell_keys: Sequence[bytes], ids: JobIds
) -> dict[str, PackedArray]:
    return {
        "computation_ids": Int4Array.of(list(map(ids.computations.__getitem__, computations))),
        "key_hashes": Int8Array.of(list(map(to_signed, key_hashes))),
        "cell_keys": ByteaArray.of(cell_keys),
    }


def _channels(production: Production, ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    if production.delivered:
        marks = [production.origins.get(channel) for channel in production.delivered]
        parameters = {**_marks(production.delivered, ids), **_commits(marks)}
        statements.append((ids.queries["advance_deliveries"], parameters))
    kept = [
        each
        for each in production.checkpoints
        if each.sequence > production.acknowledged.get(each.channel, 0)
    ]
    for some in portions(kept, lambda checkpoint: len(checkpoint.payload), portion_bytes):
        channels, sequences, min_timestamps_us, payloads = zip(*some, strict=True)
        parameters = {
            **_ends(channels, ids),
            "sequences": Int8Array.of(sequences),
            "min_timestamps_us": Int8Array.of(min_timestamps_us),
            "payloads": ByteaArray.of(payloads),
        }
        statements.append((ids.queries["insert_productions"], parameters))
    if production.acknowledged:
        receipts = [production.receipts.get(channel) for channel in production.acknowledged]
        parameters = {
            **_marks(production.acknowledged, ids),
            **_commits([each and each.mark for each in receipts]),
            "are_remembered": BoolArray.of([each and each.is_remembered for each in receipts]),
        }
        statements.append((ids.queries["acknowledge_productions"], parameters))
    return statements


def _relied_on(production: Production, ids: JobIds) -> dict[str, PackedArray]:
    """The commits of other ranges that it relies on; of each owner of a range the last.

    Not those that its own fences prove: of a range that it fences, with the same token, none can be missing.
    """
    latest: dict[tuple[RangeId, int], int] = {}
    fenced = {(each.range_id, each.token): each.bundle for each in production.fences}
    found = [(channel.sender, mark) for channel, mark in production.origins.items()]
    found += [(channel.receiver, each.mark) for channel, each in production.receipts.items()]
    for range_id, mark in found:
        if mark.bundle <= fenced.get((range_id, mark.token), 0):
            continue
        known = latest.get((range_id, mark.token), 0)
        latest[range_id, mark.token] = max(mark.bundle, known)
    return {
        "relied_on_ids": Int4Array.of([ids.range(range_id).number for range_id, _ in latest]),
        "relied_tokens": Int8Array.of([token for _, token in latest]),
        "relied_bundles": Int8Array.of(list(latest.values())),
    }


def packed_cut(cut: Mapping[RangeId, CommitMark], ids: JobIds) -> bytes:
    """A cut as it is stored: number, token and bundle of each range.

    Args:
        cut: how far ranges have come.
        ids: the numbers of the ranges.
    """
    return b"".join(
        _OF_CUT.pack(ids.range(range_id).number, *mark) for range_id, mark in cut.items()
    )


def unpacked_cut(stored: bytes) -> Iterator[tuple[int, CommitMark]]:
    """The inverse of `packed_cut`, with the numbers of ranges, which need not be there any more."""
    return ((number, CommitMark(*mark)) for number, *mark in _OF_CUT.iter_unpack(stored))


def _commits(marks: Sequence[CommitMark | None]) -> dict[str, PackedArray]:
    return {
        "tokens": Int8Array.of([mark and mark.token for mark in marks]),
        "bundles": Int8Array.of([mark and mark.bundle for mark in marks]),
    }


def _marks(marks: Mapping[Channel, int], ids: JobIds) -> dict[str, PackedArray]:
    return {**_ends(marks, ids), "sequences": Int8Array.of(list(marks.values()))}


def _ends(channels: Iterable[Channel], ids: JobIds) -> dict[str, PackedArray]:
    senders, receivers = zip(*channels, strict=True)
    return {
        "sender_range_ids": Int4Array.of([ids.range(sender).number for sender in senders]),
        "receiver_range_ids": Int4Array.of([ids.range(receiver).number for receiver in receivers]),
    }


def _fenced(
    range_ids: Iterable[RangeId], production: Production, ids: JobIds
) -> dict[str, PackedArray]:
    """Ranges that the production fences, and the bundles that these have once their fences are taken."""
    bundles = {fence.range_id: fence.bundle for fence in production.fences}
    fenced = list(range_ids)
    return {
        "range_ids": Int4Array.of([ids.range(range_id).number for range_id in fenced]),
        "bundles": Int8Array.of([bundles[range_id] for range_id in fenced]),
    }


def _signal_marks(production: Production, ids: JobIds) -> list[Statement]:
    if not production.signal_marks:
        return []
    numbers, hashes = zip(*production.signal_marks.values(), strict=True)
    parameters = {
        **_fenced(production.signal_marks, production, ids),
        "numbers": Int8Array.of(numbers),
        "hashes": Int8Array.of(list(map(to_signed, hashes))),
    }
    return [(QUERIES["advance_signals"], parameters)]


def _percentiles(production: Production, ids: JobIds) -> list[Statement]:
    percentiles_us = production.percentiles_us
    if not percentiles_us:
        return []
    parameters = {
        **_fenced(percentiles_us, production, ids),
        "percentiles_us": Int8Array.of(list(percentiles_us.values())),
    }
    return [(QUERIES["advance_percentiles"], parameters)]


def _firing(production: Production, ids: JobIds) -> list[Statement]:
    firing_us = production.firing_us
    if not firing_us:
        return []
    parameters = {
        **_fenced(firing_us, production, ids),
        "firing_us": Int8Array.of(list(firing_us.values())),
    }
    return [(QUERIES["advance_firing"], parameters)]


def _record_ids(production: Production, ids: JobIds) -> list[Statement]:
    statements: list[Statement] = []
    rows = [
        (ids.range(range_id).number, digest, timestamp_us)
        for range_id, remembered in production.record_ids.items()
        for digest, timestamp_us in dict(remembered).items()
    ]
    if rows:
        numbers, digests, timestamps_us = zip(*rows, strict=True)
        parameters: dict[str, PackedArray] = {
            "range_ids": Int4Array.of(numbers),
            "record_ids": ByteaArray.of(digests),
            "timestamps_us": Int8Array.of(timestamps_us),
        }
        statements.append((ids.queries["remember_record_ids"], parameters))
    horizons_us = production.record_id_horizons_us
    if horizons_us:
        parameters = {
            "range_ids": Int4Array.of([ids.range(range_id).number for range_id in horizons_us]),
            "horizons_us": Int8Array.of(list(horizons_us.values())),
        }
        statements.append((ids.queries["forget_record_ids"], parameters))
    return statements


def _reshape(production: Production, ids: JobIds) -> list[Statement]:
    """The new bounds; after the statements for all that a new range inherits."""
    statements: list[Statement] = []
    reshape = production.reshape
    if reshape is not None:
        head = ids.range(reshape.handover_with).number
        known = {each: keys for each, keys in reshape.keys.items() if each in ids.ranges}
        born = {each: keys for each, keys in reshape.keys.items() if each not in ids.ranges}
        if known:
            numbers = [ids.range(range_id).number for range_id in known]
            parameters = {"range_ids": Int4Array.of(numbers), **_bounds(known.values(), head)}
            statements.append((QUERIES["reshape_ranges"], parameters))
        if born:
            indexes = Int4Array.of([range_id.index for range_id in born])
            parameters = {"range_indexes": indexes, **_bounds(born.values(), head)}
            statements.append((QUERIES["bear_ranges"], parameters))
        statements.append(_reshaped(reshape, head))
    if production.ended_handovers:
        numbers = [ids.range(range_id).number for range_id in production.ended_handovers]
        statements.append((QUERIES["end_handovers"], {"range_ids": Int4Array.of(numbers)}))
    return statements


def _reshaped(reshape: Reshape, head: int) -> Statement:
    event = escaped_event(events.reshaped(reshape, None))
    return QUERIES["note_reshaped"], {
        "range_ids": Int4Array.of([head]),
        "kinds": TextArray.of([event.kind.value]),
        "subjects": TextArray.of([event.subject]),
        "reasons": TextArray.of([event.reason]),
        "details": TextArray.of([json.dumps(event.details)]),
    }


def _bounds(keys: Collection[KeyRange | None], head: int) -> dict[str, PackedArray]:
    return {
        "first_hashes": Int8Array.of([each and to_signed(each.low) for each in keys]),
        "last_hashes": Int8Array.of([each and to_signed(each.high - 1) for each in keys]),
        "heads": Int4Array.of([head] * len(keys)),
    }


def _late(production: Production, ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    for late in portions(production.late, lambda record: len(record.payload), portion_bytes):
        parameters: dict[str, PackedArray] = {
            "job_ids": Int4Array.of([ids.number] * len(late)),
            "transforms": TextArray.of([escape_text(record.transform) for record in late]),
            "keys": TextArray.of([escape_text(record.key) for record in late]),
            "window_starts_us": Int8Array.of([record.window_start_us for record in late]),
            "window_ends_us": Int8Array.of([record.window_end_us for record in late]),
            "watermarks_us": Int8Array.of([record.watermark_us for record in late]),
            "payloads": ByteaArray.of([record.payload for record in late]),
            "counts": Int8Array.of([record.count for record in late]),
            "contents": TextArray.of([escape_text(record.contents) for record in late]),
        }
        statements.append((ids.queries["insert_late"], parameters))
    return statements


def _dead(production: Production, ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    for dead in portions(production.dead, lambda letter: len(letter.payload), portion_bytes):
        parameters: dict[str, PackedArray] = {
            "job_ids": Int4Array.of([ids.number] * len(dead)),
            "stages": TextArray.of([escape_text(letter.stage) for letter in dead]),
            "errors": TextArray.of([escape_text(letter.error) for letter in dead]),
            "tracebacks": TextArray.of([escape_text(letter.traceback) for letter in dead]),
            "tries": Int4Array.of([letter.tries for letter in dead]),
            "timestamps_us": Int8Array.of([letter.timestamp_us for letter in dead]),
            "payloads": ByteaArray.of([letter.payload for letter in dead]),
            "contents": TextArray.of([escape_text(letter.contents) for letter in dead]),
        }
        statements.append((ids.queries["insert_dead_letters"], parameters))
    return statements


def _metrics(production: Production, ids: JobIds) -> list[Statement]:
    counted = production.metrics
    if counted is None:
        return []
    number = None if counted.range_id is None else ids.range(counted.range_id).number
    range_ids = Int4Array.of([number])
    statements: list[Statement] = []
    if counted.is_anew:
        statements.append((ids.queries["recount_metrics"], {"range_ids": range_ids}))
    parameters = {"range_ids": range_ids, "payloads": ByteaArray.of([counted.payload])}
    statements.append((ids.queries["append_metrics"], parameters))
    return statements


def _lineage(production: Production, ids: JobIds, portion_bytes: int) -> list[Statement]:
    statements: list[Statement] = []
    entries = list(map(escaped_lineage, production.lineage))
    for some in portions(entries, lambda entry: sum(map(len, entry.elements)), portion_bytes):
        parameters: dict[str, PackedArray] = {
            "job_ids": Int4Array.of([ids.number] * len(some)),
            "kinds": TextArray.of([entry.kind.value for entry in some]),
            "transforms": TextArray.of([entry.transform for entry in some]),
            "keys": TextArray.of([entry.key for entry in some]),
            "key_hashes": Int8Array.of([to_signed(entry.key_hash) for entry in some]),
            "window_starts_us": Int8Array.of([entry.window_start_us for entry in some]),
            "window_ends_us": Int8Array.of([entry.window_end_us for entry in some]),
            "signs": Int4Array.of([entry.sign for entry in some]),
            "counts": Int8Array.of([entry.count for entry in some]),
            "pane_indexes": Int4Array.of([entry.index for entry in some]),
            "timings": TextArray.of([entry.timing for entry in some]),
            "accumulations": TextArray.of([entry.accumulation for entry in some]),
            "watermarks_us": Int8Array.of([entry.watermark_us for entry in some]),
            "nows_us": Int8Array.of([entry.now_us for entry in some]),
            "reasons": TextArray.of([entry.reason for entry in some]),
            "origins": TextArray.of([origin_text(entry.origin) for entry in some]),
            "elements": TextArray.of([elements_text(entry.elements) for entry in some]),
        }
        statements.append((ids.queries["insert_lineage"], parameters))
    return statements
