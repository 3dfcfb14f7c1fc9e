"""One study in many parts, each computed by itself and repeated by itself."""
