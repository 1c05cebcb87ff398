"""Beam's own example programs, here: nothing but what the SDK has.

Each module has ``build(p)``, which applies the whole pipeline, and runs on every runner:
``python -m examples.beam.word_count --runner batch --job words``.
"""
