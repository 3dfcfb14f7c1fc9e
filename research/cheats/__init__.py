"""Do the checks hold against participants that deviate? Cheats, played against a real committee."""
