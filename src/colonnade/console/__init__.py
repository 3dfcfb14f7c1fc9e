"""The console: what a person sees of a standing federation in the browser (the extra ``console``)."""
