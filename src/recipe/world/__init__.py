"""The miniature world: procedures small enough that the quality of every plan is known exactly.

Goals are task graphs kept as readable data (`goals/*.toml`). From them come noisy narrations for a corpus,
examples for planners, noisy pre-training text for a base model, and a validity that no encoder or language model has a
say in.
"""
