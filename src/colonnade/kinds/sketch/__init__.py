"""The price of a mechanism that is only described: rounds of clipped, rounded, noisy sums over batches.

No paper, and nothing is run: ``model`` plans, and names the events of its rounds, which rest on the theorem that the
description names. ``colonnade privacy`` and ``colonnade plan`` answer questions about it.
"""
