"""The queries of Nexmark in SQL, for Flink and Spark; what the two call differently is in `FLINK` and `SPARK`.

They are those of github.com/nexmark/nexmark with an order where it leaves one open.  Means are integers that are cut.
"""

from collections.abc import Mapping

#: The fields of events with the names of their types in both dialects.
FIELDS = (
    "kind INT, date_time_ms BIGINT, extra STRING, id BIGINT, name STRING, email_address STRING, credit_card STRING, "
    "city STRING, state STRING, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    "expires_ms BIGINT, seller BIGINT, category BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, "
    "url STRING"
)
VIEWS = {
    "person": "SELECT id, name, city, state, date_time_ms, extra, ts FROM events WHERE kind = 0",
    "auction": "SELECT id, item_name, description, initial_bid, reserve, date_time_ms, expires_ms, seller, category, "
    "extra, ts FROM events WHERE kind = 1",
    "bid": "SELECT auction, bidder, price, channel, url, date_time_ms, extra, ts FROM events WHERE kind = 2",
}

#: The table of q13: numbers, and the same as texts.
SIDE_INPUT = "SELECT id AS `key`, CAST(id AS STRING) AS `value` FROM {numbers}"
FLINK_NUMBERS = (
    "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', "
    "'fields.id.start' = '0', 'fields.id.end' = '9999', 'number-of-rows' = '10000')"
)

_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_BID = "auction, bidder, price, channel, url, date_time_ms, extra"
#: Best first.
_ORDER = "price DESC, date_time_ms ASC, bidder DESC, channel DESC, url DESC, extra DESC"


def _by_rank(what: str) -> str:
    return ", ".join([what, *(f"{what} FILTER (WHERE {rank})" for rank in _RANKS)])


_STATISTICS = ", ".join(
    map(_by_rank, ("COUNT(*)", "COUNT(DISTINCT bidder)", "COUNT(DISTINCT auction)"))
)
_DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')"
_OPEN = "A.id = B.auction AND B.date_time_ms BETWEEN A.date_time_ms AND A.expires_ms"

#: The columns of q10 that are names of folders.
FOLDERS = ("dt", "hm")

COMMON: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time_ms, extra FROM bid",
    "q1": "SELECT auction, bidder, 908 * price, date_time_ms, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id "
    "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, SUM(final) {div} COUNT(*) FROM ("
    f"SELECT MAX(B.price) AS final, A.category FROM auction A JOIN bid B ON {_OPEN} GROUP BY A.id, A.category"
    ") Q GROUP BY category",
    "q6": "SELECT seller, SUM(final) {div} COUNT(*) FROM (SELECT seller, final, ROW_NUMBER() OVER (PARTITION BY seller "
    "ORDER BY expires_ms DESC, id DESC) AS rank_number FROM (SELECT MAX(B.price) AS final, A.seller, A.expires_ms, "
    f"A.id FROM auction A JOIN bid B ON {_OPEN} GROUP BY A.seller, A.expires_ms, A.id)) WHERE rank_number <= 10 "
    "GROUP BY seller",
    "q9": "SELECT id, item_name, description, initial_bid, reserve, opened_ms, expires_ms, seller, category, "
    "auction_extra, auction, bidder, price, date_time_ms, extra FROM ("
    f"SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {_ORDER}) AS rank_number FROM ("
    "SELECT A.id, A.item_name, A.description, A.initial_bid, A.reserve, A.date_time_ms AS opened_ms, A.expires_ms, "
    "A.seller, A.category, A.extra AS auction_extra, B.auction, B.bidder, B.price, B.channel, B.url, "
    f"B.date_time_ms, B.extra FROM auction A JOIN bid B ON {_OPEN})) WHERE rank_number <= 1",
    "q10": "SELECT auction, bidder, price, date_time_ms, extra, DATE_FORMAT(ts, 'yyyy-MM-dd') AS dt, "
    "DATE_FORMAT(ts, 'HH-mm') AS hm FROM bid",
    "q13": "SELECT B.auction, B.bidder, B.price, B.date_time_ms, S.`value` FROM bid AS B JOIN side_input AS S "
    "ON MOD(B.auction, 10000) = S.`key`",
    "q14": "SELECT auction, bidder, 908 * price, CASE WHEN hour_of_day BETWEEN 8 AND 18 THEN 'dayTime' "
    "WHEN hour_of_day <= 6 OR hour_of_day >= 20 THEN 'nightTime' ELSE 'otherTime' END, date_time_ms, extra, "
    "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM (SELECT *, MOD(date_time_ms {div} 3600000, 24) AS "
    "hour_of_day FROM bid WHERE 908 * price > 1000000000 AND 908 * price < 50000000000)",
    "q15": f"SELECT {_DAY}, {_STATISTICS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY}, MAX(DATE_FORMAT(ts, 'HH:mm')), {_STATISTICS} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"SELECT auction, {_DAY}, {_by_rank('COUNT(*)')}, MIN(price), MAX(price), "
    f"SUM(price) {{div}} COUNT(*), SUM(price) FROM bid GROUP BY auction, {_DAY}",
    "q18": f"SELECT {_BID} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY "
    "date_time_ms DESC, price DESC, channel DESC, url DESC, extra DESC) AS rank_number FROM bid) "
    "WHERE rank_number <= 1",
    "q19": f"SELECT {_BID}, rank_number FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY {_ORDER}) "
    "AS rank_number FROM bid) WHERE rank_number <= 10",
    "q20": "SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time_ms, B.extra, A.item_name, "
    "A.description, A.initial_bid, A.reserve, A.date_time_ms, A.expires_ms, A.seller, A.category, A.extra "
    "FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10",
}
#: q5, of what counts the bids of an auction and window.
_HOT = (
    "SELECT C.auction, C.num, C.start_ms FROM ({counts}) C JOIN (SELECT MAX(num) AS most, start_ms FROM ({counts}) "
    "GROUP BY start_ms) M ON C.start_ms = M.start_ms AND C.num = M.most"
)
_FLINK_MS = "1000 * unix_timestamp(CAST({} AS STRING))"
_HOP = (
    f"SELECT auction, COUNT(*) AS num, {_FLINK_MS.format('window_start')} AS start_ms FROM TABLE(HOP(TABLE bid, "
    "DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
FLINK: Mapping[str, str] = {name: query.format(div="/") for name, query in COMMON.items()} | {
    "q5": _HOT.format(counts=_HOP),
    "q7": "SELECT B.auction, B.price, B.bidder, B.date_time_ms, B.extra FROM "
    f"(SELECT * FROM {_TUMBLE.format('bid')}) B JOIN (SELECT MAX(price) AS most, window_start, window_end FROM "
    f"{_TUMBLE.format('bid')} GROUP BY window_start, window_end) M "
    "ON B.price = M.most AND B.window_start = M.window_start AND B.window_end = M.window_end",
    "q8": f"SELECT P.id, P.name, {_FLINK_MS.format('P.window_start')} FROM (SELECT id, name, window_start, window_end "
    f"FROM {_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, "
    f"window_start, window_end FROM {_TUMBLE.format('auction')} GROUP BY seller, window_start, window_end) A "
    "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end",
    "q11": "SELECT bidder, COUNT(*), MIN(date_time_ms), MAX(date_time_ms) + 10000 FROM TABLE(SESSION(TABLE bid "
    "PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
    "q12": "SELECT bidder, COUNT(*) FROM (SELECT bidder, UNIX_TIMESTAMP() / 10 AS ten_s FROM bid) "
    "GROUP BY bidder, ten_s",
    "q21": "SELECT auction, bidder, price, channel, channel_id FROM (SELECT *, CASE LOWER(channel) WHEN 'apple' THEN "
    "'0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE "
    "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid) WHERE channel_id IS NOT NULL",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), "
    "SPLIT_INDEX(url, '/', 5) FROM bid",
}
_SLIDING = (
    "SELECT auction, COUNT(*) AS num, unix_millis(w.start) AS start_ms FROM (SELECT auction, "
    "window(ts, '10 seconds', '2 seconds') AS w FROM bid) GROUP BY auction, w"
)
SPARK: Mapping[str, str] = {name: query.format(div="div") for name, query in COMMON.items()} | {
    "q5": _HOT.format(counts=_SLIDING),
    "q7": "SELECT auction, price, bidder, date_time_ms, extra FROM (SELECT *, window(ts, '10 seconds') AS w FROM bid) "
    "JOIN (SELECT MAX(price) AS most, w AS of FROM (SELECT price, window(ts, '10 seconds') AS w FROM bid) GROUP BY w) "
    "ON price = most AND w = of",
    "q8": "SELECT P.id, P.name, unix_millis(P.w.start) FROM (SELECT DISTINCT id, name, window(ts, '10 seconds') AS w "
    "FROM person) P JOIN (SELECT DISTINCT seller, window(ts, '10 seconds') AS w FROM auction) A "
    "ON P.id = A.seller AND P.w = A.w",
    "q11": "SELECT bidder, COUNT(*), unix_millis(session_window.start), unix_millis(session_window.end) FROM bid "
    "GROUP BY bidder, session_window(ts, '10 seconds')",
    "q12": "SELECT bidder, COUNT(*) FROM bid GROUP BY bidder, window(current_timestamp(), '10 seconds')",
    "q21": "SELECT auction, bidder, price, channel, channel_id FROM (SELECT *, CASE LOWER(channel) WHEN 'apple' THEN "
    "'0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE "
    "NULLIF(REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid) "
    "WHERE channel_id IS NOT NULL",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), "
    "split_part(url, '/', 6) FROM bid",
}
