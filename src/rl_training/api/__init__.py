"""The Python interface: managed classes and training functions, made from the catalogue of algorithms."""
