"""What a model plugin implements: nodes, walks, the front, weights.

``walks`` and ``front`` are free of torch; ``base`` holds the two classes that build and compute.
"""
