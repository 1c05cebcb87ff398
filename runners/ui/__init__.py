"""The page of a store's jobs, which reads the store alone: it answers when no driver does.

`app.py` has its addresses, `pages.py` what is on them, as values that are the JSON too; `queries/` has every SQL text.

**Invariant:** nothing is unpickled and nothing is written; keys, records and what errors say of them are shown only to
whoever has asked for them.
"""
