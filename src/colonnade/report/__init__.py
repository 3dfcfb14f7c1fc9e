"""What a person sees of a finished run."""
