"""`lockstitch demo` and the data of `serve --demo`."""
