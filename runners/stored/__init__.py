"""The bytes of everything that is stored, or sent between processes, with the number of the format.

`docs/stored-format.md` describes the bytes, for reading a store without this package.

Everything is one MessagePack array: the number of the format, the kind, and the fields of the kind (`framing.py`).
Fields are numbers, texts, bytes and lists of these.  Users' own values are pickles, one for all values of an array,
in a field of its own; so everything that the framework has written can be read without unpickling anything.

**Invariant:** the bytes of a kind change only with the number, and the golden files in ``tests/golden`` show it.
**Invariant:** no bytes name a module or class of this package, so modules and classes can be moved.
**Invariant:** code reads the formats that it declares as readable, and refuses others by name before it changes
anything.
"""

from runners.stored import value_tags as value_tags
