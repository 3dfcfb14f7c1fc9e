"""What models show of themselves in pictures, as plain values; one module for each thing drawn."""
