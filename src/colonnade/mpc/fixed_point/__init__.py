"""Computing with shared numbers that have fractional bits: arithmetic, functions, masks, bits."""
