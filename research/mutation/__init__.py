"""Small faults put into the source one at a time: does a test notice? (``python -m research.mutation``)."""
