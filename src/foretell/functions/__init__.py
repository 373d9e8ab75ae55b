"""The functions of the package; `foretell` itself gives them all."""
